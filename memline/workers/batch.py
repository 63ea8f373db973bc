"""Queue `batch`: jobs of a provider's Batch API. Runs beside the index."""

from __future__ import annotations

from contextlib import closing

from memline.shared.batches.life import Life
from memline.shared.index import batches
from memline.shared.index.driver import faults
from memline.shared.index.hold import BATCHES, hold
from memline.shared.index_writer import IndexWriter
from memline.shared.logs import Log
from memline.shared.queue.broker import actor, send
from memline.shared.queue.messages import AdvanceBatches, Sweep
from memline.workers.context import current

_LOG = Log("batch")


@actor(AdvanceBatches)
def advance_batches(message: AdvanceBatches) -> None:
    """Do the next step of each batch that is due, and store what it brings.

    Safe twice, late and out of order: one process at a time works on the batches of an index, and does what
    the row of a batch says. It also does what becomes due meanwhile, for which another was called.
    """
    context = current()
    settings, clock = context.agent(message.agent), context.clock
    with faults(settings.index_path), closing(IndexWriter.of(settings, clock=clock)) as writer:
        lock = hold(settings.index_path, "batch", clock.now(), part=BATCHES)
        if lock is None:
            return
        with closing(lock):
            while not context.stopping.is_set() and (due := batches.due(writer.connection, clock.now())[0]):
                token, _ = due[0]
                life = Life(writer.accounts, writer.budget, writer.store_vectors, settings, clock, token)
                life.advance()
                _LOG.info("batch.advanced", batch=token, state=life.row.state, error=life.row.error)
    # The dispatcher goes on with what the batches left.
    send(Sweep(agent=message.agent))
