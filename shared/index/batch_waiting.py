"""What a command that waits for vectors must know of batches: which of them come without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.config.schema import Batch as Settings
from shared.index import batch_dispatch, batches, health, identity
from shared.index.batch_settle import KEPT
from shared.index.batches import Batch, Verdict
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection


@value
class Waiting:
    """The open batches of an identity, as a command that waits sees them."""

    #: Those the provider has and that have been looked at; and their texts that are still to come.
    parked: tuple[Batch, ...] = ()
    texts: int = 0
    #: Texts that go by batch as soon as there is a place for one more.
    in_line: int = 0
    #: Why a step of one of them failed that is tried again; empty when nothing is wrong.
    delayed: str = ""
    #: Whether a batch is being made, taken in or cleaned up, which is a matter of moments.
    is_busy: bool = False

    @property
    def trouble(self) -> Batch | None:
        """A batch that waits for somebody to act."""
        return next((batch for batch in self.parked if batch.action), None)

    def are_left(self, settings: Settings) -> bool:
        """Whether a command need not wait for what is parked."""
        return not settings.wait or self.trouble is not None


def waiting(connection: Connection, identity_id: int, settings: Settings, *, since: float) -> Waiting:
    """Look at the open batches of an identity. `since`: when the command began; what was looked at before is
    looked at once more, since it may be done by now."""
    ours = [batch for batch in batches.open_batches(connection) if batch.identity_id == identity_id]
    if not ours:
        return Waiting()
    parked = tuple(batch for batch in ours if _is_parked(batch, since))
    unfinished = [batch for batch in ours if batch.is_unfinished]
    is_one_by_one = bool(unfinished) and _has_token_limit(connection, identity_id)
    is_full = is_one_by_one or len(unfinished) >= settings.concurrency
    return Waiting(
        parked=parked,
        texts=sum(batches.texts_left(connection, batch.token) for batch in parked),
        in_line=batch_dispatch.in_line(connection, identity_id) if is_full else 0,
        delayed=next((batch.error for batch in ours if batch.error and not batch.verdict), ""),
        is_busy=any(_is_busy(batch) for batch in ours if batch not in parked),
    )


def failed_since(connection: Connection, identity_id: int, since: float) -> Batch | None:
    """The last batch of an identity that failed since then, so that its texts went out in requests."""
    return next(
        (
            batch
            for batch in batches.latest(connection, KEPT)
            if batch.identity_id == identity_id
            and batch.verdict in (Verdict.FAILED, Verdict.UNAVAILABLE)
            and (batch.is_open or batch.closed_at >= since)
        ),
        None,
    )


def _has_token_limit(connection: Connection, identity_id: int) -> bool:
    row = identity.by_id(connection, identity_id)
    return row is not None and health.read(connection, row.identity.provider, health.BATCH).max_tokens > 0


def _is_parked(batch: Batch, since: float) -> bool:
    if batch.state not in ("submitted", "collecting"):
        return False
    is_seen = max(batch.submitted_at, batch.looked_at) >= since
    is_told = bool(batch.cancelled_at) or not batch.cancel_asked
    return bool(batch.action) or (batch.state == "submitted" and is_seen and is_told)


def _is_busy(batch: Batch) -> bool:
    # One whose files the provider does not let go is left to whoever comes next.
    return batch.state != "cleaning" or not batch.attempts
