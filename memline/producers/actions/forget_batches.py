"""End the batches at a provider that hold a text which was forgotten, with no other process running."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from memline.shared.batches.batch_lifecycle import Lifecycle
from memline.shared.batches.open_batches import ClaimLost, claimed
from memline.shared.batches.remote import BatchApis
from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.index import batches, driver, identities
from memline.shared.index.batches import Batch
from memline.shared.index_writer import IndexWriter
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Seconds that a command waits for providers to let the files go.
WAIT_S = 30.0

#: Seconds between two looks, while another process works on a batch or its provider is asked again.
LOOK_S = 0.5


@value
class LeftBehind:
    """A batch whose file is still at its provider."""

    batch: str
    #: The provider's name of the file, where it is known.
    file: str
    provider: str
    error: str


def unnamed(agent: AgentSettings) -> list[LeftBehind]:
    """List the batches whose file may hold texts of which no note, and no words here, tell what they are."""
    query = (
        "SELECT token FROM batches WHERE uploads > 0 AND (state IN ('collecting', 'cleaning')"
        f" OR (state = 'closed' AND error LIKE '%{batches.FILES_LEFT}%') OR (state <> 'closed' AND EXISTS"
        " (SELECT 1 FROM vectors WHERE lease = token AND text_hash NOT IN (SELECT text_hash FROM chunks))))"
    )
    with driver.reading_if_any(agent.index_path) as reader:
        tokens = [token for (token,) in reader.execute(query)] if reader else []
        found = [batch for token in tokens if reader and (batch := batches.get(reader, token))]
        return [_named(reader, batch) for batch in found if reader and not _is_file_gone(batch)]


def reopen(writer: IndexWriter) -> None:
    """Have the files removed that a closed batch has left at its provider."""
    with writer.transaction() as (connection, now):
        connection.execute(
            "UPDATE batches SET state = 'cleaning', attempts = 0, due = ? WHERE state = 'closed'"
            f" AND error LIKE '%{batches.FILES_LEFT}%'",
            (now,),
        )


def end(agent: AgentSettings, writer: IndexWriter, clock: Clock) -> list[LeftBehind]:
    """Carry every batch to its end that may hold a forgotten text; return those that did not come to it.

    Those are the ones that were cancelled for it, and those whose vectors are stored and whose files are not
    removed yet.
    """
    until = clock.now() + WAIT_S
    with closing(BatchApis()) as apis:
        while left := [batch for batch in batches.open_batches(writer.connection) if _may_hold(batch)]:
            for batch in left:
                _advance(agent, writer, batch, apis, clock)
            if clock.now() >= until:
                break
            clock.sleep(LOOK_S)
        with writer.session() as (connection, _):
            return [_named(connection, batches.get(connection, each.token) or each) for each in left]


def _may_hold(batch: Batch) -> bool:
    is_asked = batch.cancel_reason == batches.FORGOTTEN
    is_meant = is_asked or batch.state in ("collecting", "cleaning")
    return bool(batch.uploads and is_meant and not _is_file_gone(batch))


def _is_file_gone(batch: Batch) -> bool:
    """Tell whether the only file of a batch was removed before its provider has cancelled it."""
    is_asked = batch.cancel_reason == batches.FORGOTTEN
    return bool(is_asked and batch.job_id and not batch.file_id and batch.uploads == 1)


def _advance(agent: AgentSettings, writer: IndexWriter, batch: Batch, apis: BatchApis, clock: Clock) -> None:
    """Do the steps of a batch that are due, unless another process works on it."""
    if batch.due > clock.now():
        return
    with writer.session() as (connection, _), claimed(connection, batch.token, clock) as claim:
        row = identities.by_id(connection, batch.identity_id)
        if claim is None or row is None:
            return
        lifecycle = Lifecycle(
            claim=claim,
            accounts=writer.accounts,
            budget=writer.budget,
            api=partial(apis.of, agent, row.identity, row.base_url),
            identity=row.identity,
            agent=agent.agent,
            settings=agent.memory.remote.batch,
        )
        try:
            lifecycle.advance()
        except ClaimLost:
            return


def _named(connection: Connection, batch: Batch) -> LeftBehind:
    row = identities.by_id(connection, batch.identity_id)
    provider = row.identity.provider if row else ""
    return LeftBehind(batch=batch.token, file=batch.file_id, provider=provider, error=batch.error)
