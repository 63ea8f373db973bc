"""Queue `store`: the only writer of the index, and the dispatcher. One process, one thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dramatiq

from shared.index import dispatch, fallback
from shared.index.rows import LearnedCaps
from shared.index.writer import IndexWriter
from shared.logs import Log
from shared.queue.credits import rows_per_request
from shared.queue.messages import ChunkFiles, EmbedFailed, EmbedTexts, StoreFiles, StoreVectors, Sweep, decode
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
def sweep(raw: dict[str, Any]) -> None:
    """Send out what waits; when deep, first free what is overdue. Safe at any time, any number of times."""
    message = decode(raw, Sweep)
    here = runtime.current()
    if message.deep:
        writer = here.writer(message.agent)
        before = writer.lease_tokens()
        writer.sweep()
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
        identity, hashes = found
        writer.embed_failed(
            identity,
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
    """Lease what the credits allow and send it to the embed workers, one request a message."""
    writer = here.writer(agent)
    choice = here.sender(agent)
    if choice.identity is None or choice.caps is None:
        return
    credits = here.credits.now()
    caps = replace(choice.caps, max_rows=rows_per_request(choice.caps.max_rows, credits))
    requests = writer.lease(caps, credits=credits, only_full=only_full, only=choice.identity)
    if not only_full:
        first = fallback.probe(writer, here.choice(agent), here.stand_in(agent))
        requests += [first] if first else []
    for request in requests:
        send(EmbedTexts(agent=agent, identity=request.identity, lease=request.lease, texts=request.texts))
    if only_full:
        here.bell.ask(agent, LINGER_S)
    elif not requests and (wait_s := writer.next_try_s()):
        here.bell.ask(agent, wait_s)
