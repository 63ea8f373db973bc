"""Queue `batch`: jobs of a provider's Batch API. Runs beside the index."""

from __future__ import annotations

from contextlib import closing

from memline.shared.batches.life import Life
from memline.shared.index import batches, identities
from memline.shared.index.driver import faults
from memline.shared.index.hold import BATCHES, hold
from memline.shared.index_writer import IndexWriter
from memline.shared.logs import Log
from memline.shared.queue.broker import actor, send
from memline.shared.queue.messages import AdvanceBatch, Sweep
from memline.workers.context import current

_LOG = Log("batch")


@actor(AdvanceBatch)
def advance_batch(message: AdvanceBatch) -> None:
    """Do the steps of a batch whose time has come, and store what it brings.

    Safe twice, late and out of order: one process at a time works on the batches of an index, and does what
    the row of the batch says; every step is on record before the next one begins.
    """
    context, token = current(), message.token
    settings, clock = context.agent(message.agent), context.clock
    with faults(settings.index_path), closing(IndexWriter.of(settings, clock=clock)) as writer:
        lock = hold(settings.index_path, "batch", clock.now(), part=BATCHES)
        if lock is None:
            return
        with closing(lock):
            batch = batches.get(writer.connection, token)
            if batch is None or not batch.is_open or batch.due > clock.now():
                return
            model = identities.by_id(writer.connection, batch.identity_id)
            assert model is not None
            Life(writer.accounts, writer.budget, settings, clock, token, model).advance()
            after = batches.get(writer.connection, token) or batch
            _LOG.info("batch.advanced", batch=token, state=after.state, job=after.job_id, error=after.error)
    # The dispatcher goes on with what the batch left.
    send(Sweep(agent=message.agent))
