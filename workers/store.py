"""Queue `store`: the only writer of the index, and the dispatcher. One process, one thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dramatiq

from shared.embedders.choice import Choice
from shared.embedders.protocol import Identity, RequestCaps
from shared.index import dispatch, fallback, health, identity
from shared.index.batches import Verdict
from shared.index.rows import LearnedCaps
from shared.index.writer import IndexWriter
from shared.logs import Log
from shared.queue.credits import rows_per_request
from shared.queue.messages import (
    ChunkFiles,
    EmbedFailed,
    EmbedTexts,
    PollBatch,
    SettleBatch,
    StoreFiles,
    StoreVectors,
    SubmitBatch,
    Sweep,
    decode,
)
from shared.queue.send import send
from workers import runtime

#: Seconds a request that is not full waits for more texts, so that small files share requests.
LINGER_S = 0.1

_LOG = Log("store")


@dramatiq.actor(queue_name="store")
def store_files(raw: dict[str, Any]) -> None:
    """Make the index agree with the files that chunk workers looked at.

    Safe twice, late and out of order: each row loses against a newer look at the same file.
    """
    message = decode(raw, StoreFiles)
    here = runtime.current()
    writer = here.writer(message.agent)
    for row in message.files:
        stored = writer.store_file(row, backfill=message.backfill, asked_ns=message.asked_ns)
        _LOG.info("file.stored", path=row.path, change=stored.change, outcome=stored.outcome)
        if stored.change == "unknown":
            # What is new of a transcript is found again from what the ledger has now.
            is_note = row.progress is None
            again = ChunkFiles(agent=message.agent, source=row.source, paths=(row.path,), force=is_note)
            send(again)
    _dispatch(here, message.agent, only_full=True)


@dramatiq.actor(queue_name="store")
def store_vectors(raw: dict[str, Any]) -> None:
    """Keep vectors that came back, and send out the next texts.

    Safe twice, late and out of order: an upsert by text hash and identity; a vector that is there stays.
    """
    message = decode(raw, StoreVectors)
    here = runtime.current()
    here.writer(message.agent).store_vectors(
        message.identity, message.lease, message.vectors, message.learned
    )
    here.settle_provider(message.agent, message.identity)
    _dispatch(here, message.agent, only_full=True)


@dramatiq.actor(queue_name="store")
def embed_failed(raw: dict[str, Any]) -> None:
    """Note that texts got no vector: send them again later, mark them, or pause the provider.

    Safe twice, late and out of order: it counts only while its lease still holds the rows.
    """
    message = decode(raw, EmbedFailed)
    here = runtime.current()
    writer = here.writer(message.agent)
    writer.embed_failed(
        message.identity,
        message.lease,
        message.hashes,
        kind=message.kind,
        error=message.error,
        action=message.action,
        retry_after_s=message.retry_after_s,
        learned=message.learned,
        fruitless=message.fruitless,
    )
    here.settle_provider(message.agent, message.identity)
    here.bell.ask(message.agent, LINGER_S)


@dramatiq.actor(queue_name="store")
def settle_batch(raw: dict[str, Any]) -> None:
    """End a batch behind all that it brought: the texts it brought nothing for go out again.

    Safe twice, late and out of order: it counts once, and only when no more texts are missing than the batch
    worker knows of.
    """
    message = decode(raw, SettleBatch)
    here = runtime.current()
    settings = here.agent(message.agent).memory.remote.batch
    rules = health.batch_rules(settings)
    writer = here.writer(message.agent)
    batch = writer.batches.settle(
        message.token, missing=message.missing, rules=rules, min_texts=settings.min_texts
    )
    if batch is not None:
        _LOG.info(
            "batch.settled",
            batch=batch.token,
            outcome=batch.outcome,
            rows=batch.rows,
            stored=batch.stored,
            failed=batch.failed,
            error=batch.error,
        )
        of = identity.by_id(writer.connection, batch.identity_id)
        if batch.verdict == Verdict.STOP and of is not None:
            here.settle_provider(message.agent, of.identity)
    _dispatch(here, message.agent, only_full=False)


@dramatiq.actor(queue_name="store")
def sweep(raw: dict[str, Any]) -> None:
    """Send out what waits; when deep, first free what is overdue. Safe at any time, any number of times."""
    message = decode(raw, Sweep)
    here = runtime.current()
    if message.deep:
        writer = here.writer(message.agent)
        before = writer.lease_tokens()
        writer.sweep()
        writer.batches.sweep(here.choice(message.agent).identity)
        if not here.serves_batches():
            writer.batches.recall()
        if here.deliveries is not None:
            leases = writer.lease_tokens()
            here.deliveries.withdraw(set(before) - set(leases))
            for lease, error in here.deliveries.died(leases).items():
                _give_up(writer, lease, error)
            writer.free_leases(here.deliveries.lost(leases, asked=message.sent, now=here.clock.now()))
    _dispatch(here, message.agent, only_full=False)


def _give_up(writer: IndexWriter, lease: str, error: str) -> None:
    """A request became a dead letter: its texts count a failure, or they would go out and die for ever."""
    found = dispatch.content(writer.connection, lease)
    if found is not None:
        of, hashes = found
        writer.embed_failed(
            of,
            lease,
            hashes,
            kind="broken",
            error=f"a worker failed: {error}",
            action="memline queue dead",
            retry_after_s=None,
            learned=LearnedCaps(),
            fruitless=True,
        )


def _dispatch(here: runtime.Runtime, agent: str, *, only_full: bool) -> None:
    """Send out what there is to do: requests to the embed workers, due batches to the batch worker."""
    choice = here.sender(agent)
    if choice.identity is not None and choice.caps is not None:
        _request(here, agent, choice, choice.identity, choice.caps, only_full=only_full)
    _hand_out(here, agent)


def _request(
    here: runtime.Runtime,
    agent: str,
    choice: Choice,
    of: Identity,
    usual: RequestCaps,
    *,
    only_full: bool,
) -> None:
    """Lease what the credits allow, one request a message; what is worth a batch waits for one."""
    writer = here.writer(agent)
    credits = here.credits.now()
    caps = replace(usual, max_rows=rows_per_request(usual.max_rows, credits))
    rules = here.batch_rules(agent, choice)
    gathered = writer.batches.gather(rules, only=of, is_feeding=rules is not None and here.is_feeding())
    requests = writer.lease(caps, credits=credits, only_full=only_full, only=of, above=gathered.above)
    if not only_full:
        first = fallback.probe(writer, here.choice(agent), here.stand_in(agent))
        requests += [first] if first else []
    for request in requests:
        send(
            EmbedTexts(
                agent=agent,
                identity=request.identity,
                lease=request.lease,
                texts=request.texts,
                is_probe=request.is_probe,
            )
        )
    if gathered.again_s:
        here.bell.ask(agent, gathered.again_s)
    elif only_full:
        here.bell.ask(agent, LINGER_S)
    elif not requests and (wait_s := writer.next_try_s()):
        here.bell.ask(agent, wait_s)


def _hand_out(here: runtime.Runtime, agent: str) -> None:
    """Send the batch worker what is due, and come back when the next batch is."""
    if not here.serves_batches():
        return
    given, wait_s = here.writer(agent).batches.hand_out()
    for batch in given:
        is_new = batch.state in ("intent", "uploaded")
        send((SubmitBatch if is_new else PollBatch)(agent=agent, token=batch.token))
    if wait_s is not None:
        here.bell.ask(agent, wait_s)
