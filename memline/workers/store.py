"""Queue `store`: stores files and vectors, and is the one dispatcher of an index. One process, one thread."""

from __future__ import annotations

from functools import partial

from memline.shared.logs import Log
from memline.shared.providers import PROVIDERS
from memline.shared.queue.broker import actor, send
from memline.shared.queue.feed import FEED_EVERY_S, JobFeeder
from memline.shared.queue.messages import (
    AdvanceBatches,
    EmbedTexts,
    StoreFiles,
    StoreVectors,
    Sweep,
)
from memline.shared.scheduling import model_change
from memline.workers.context import Context, current

#: Seconds a request that is not full waits for more texts, so that small files share requests.
LINGER_S = 0.1

_LOG = Log("store")


@actor(StoreFiles)
def store_files(message: StoreFiles) -> None:
    """Make the index agree with the files that chunk workers looked at.

    Safe twice, late and out of order: each row loses against a newer look at the same file.
    """
    context = current()
    context.agent(message.agent, index=message.index)
    writer = context.writer(message.agent)
    changes = writer.store_files(message.files, job=message.job)
    for row, change in zip(message.files, changes, strict=True):
        chunks = len(row.chunks or ())
        _LOG.debug("file.stored", path=row.path, change=change, outcome=row.outcome, chunks=chunks)
    _dispatch(context, message.agent, only_full=True)


@actor(StoreVectors)
def store_vectors(message: StoreVectors) -> None:
    """Store vectors, and note which texts got none: send them again later, mark them, or pause the provider.

    Safe twice, late and out of order: an upsert by text hash and identity, a vector that is there stays, and
    a failure counts only while its lease still holds the rows.
    """
    context = current()
    context.writer(message.agent).store_vectors(message.answer)
    if not message.answer.vectors:
        # A worker that cannot send must not get the same texts again at full speed.
        context.schedule(message.agent, LINGER_S)
        return
    _dispatch(context, message.agent, only_full=True)


@actor(Sweep)
def sweep(message: Sweep) -> None:
    """Send what waits; when deep, first end what is overdue. Safe at any time, any number of times."""
    context = current()
    if message.deep and context.dispatches(message.agent):
        writer = context.writer(message.agent)
        if over := writer.sweep():
            _LOG.warning("leases.over", agent=message.agent, count=len(over))
        writer.note_minute()
    _dispatch(context, message.agent, only_full=False)


def _dispatch(context: Context, agent: str, *, only_full: bool) -> None:
    """Send what there is to do: files of jobs, requests to the embed workers, due batches to their worker.

    Only the process that holds the lock of the index does so; another one tries again at its next deep sweep.
    Nor does a process that ends: its requests would be counted, and not sent.
    """
    writer = context.writer(agent)
    if context.stopping.is_set() or not context.dispatches(agent):
        return
    primary, second = context.choices(agent)
    with writer.session() as (connection, now):
        if context.keep(("feeder", agent), partial(JobFeeder, agent, writer.path.name)).advance(connection):
            context.schedule(agent, FEED_EVERY_S)
        # A request or a batch may have found that the provider stopped.
        model_change.switch_if_needed(writer.accounts, primary, second, now)
        if second is not None and model_change.is_target(connection, second):
            primary = second
    if (identity := primary.identity) is not None and (caps := primary.caps) is not None:
        # Lease what the credits allow; what is worth a batch waits for one.
        batch = context.agent(agent).memory.remote.batch
        rules = batch if batch.enabled and PROVIDERS[identity.provider].batch_hours else None
        credits = context.credits()
        requests = writer.lease(caps, credits=credits, only_full=only_full, only=identity, batch=rules)
        for request in requests:
            send(EmbedTexts(agent=agent, request=request))
        if only_full:
            context.schedule(agent, LINGER_S)
        elif not requests and (wait_s := writer.retry_in_s()):
            context.schedule(agent, wait_s)
    is_due, due_in_s = writer.due_batches()
    if is_due:
        send(AdvanceBatches(agent=agent))
    if due_in_s is not None:
        context.schedule(agent, due_in_s)
