"""Queue `batch`: jobs of a provider's Batch API. Runs beside the index."""

from __future__ import annotations

from contextlib import closing

from memline.shared.batches.life import Life, alone
from memline.shared.batches.wire import OpenAI, wire_of
from memline.shared.embedders.choice import choose_for_identity
from memline.shared.index import batches, identities
from memline.shared.index.driver import faults
from memline.shared.index_writer import IndexWriter
from memline.shared.logs import Log
from memline.shared.queue.broker import actor, send
from memline.shared.queue.messages import AdvanceBatch, Sweep
from memline.workers.context import current

_LOG = Log("batch")


@actor(AdvanceBatch)
def advance_batch(message: AdvanceBatch) -> None:
    """Do the steps of a batch whose time has come, and store what it brings.

    Safe twice, late and out of order: one worker at a time works on the batches of an index, and does what
    the row of the batch says; every step is on record before the next one begins.
    """
    context = current()
    settings = context.agent(message.agent)
    with (
        faults(settings.index_path),
        closing(IndexWriter.of(settings, clock=context.clock)) as writer,
        alone(settings.index_path) as is_alone,
    ):
        batch = batches.get(writer.connection, message.token)
        if not is_alone or batch is None or not batch.is_open or batch.due > context.clock.now():
            return
        row = identities.by_id(writer.connection, batch.identity_id)
        assert row is not None
        identity, base_url = row.identity, row.base_url

        def connect() -> OpenAI:
            return wire_of(choose_for_identity(settings, identity, base_url), context.clock)

        life = Life(
            accounts=writer.accounts,
            budget=writer.budget,
            identity=identity,
            agent=message.agent,
            settings=settings.memory.remote.batch,
            clock=context.clock,
            connect=connect,
            should_stop=context.stopping.is_set,
        )
        try:
            life.advance(message.token)
        finally:
            after = batches.get(writer.connection, message.token) or batch
            _LOG.info(
                "batch.advanced",
                batch=message.token,
                state_before=batch.state,
                state=after.state,
                outcome=after.outcome,
                job=after.job_id,
                provider_state=after.provider_state,
                rows=after.rows,
                stored=after.stored,
                error=after.error,
            )
    # The dispatcher goes on with what the batch left.
    send(Sweep(agent=message.agent))
