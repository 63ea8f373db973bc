"""Queue `batch`: jobs of a provider's Batch API. Runs beside the index."""

from __future__ import annotations

from contextlib import closing
from functools import partial

from memline.shared.batches.batch_lifecycle import Interrupted, Lifecycle
from memline.shared.batches.open_batches import ClaimLost, claimed
from memline.shared.batches.remote import BatchApis
from memline.shared.errors import MemlineError
from memline.shared.index import identities
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

    Safe twice, late and out of order: it claims the batch by compare-and-set and does what its row says,
    every step is on record before the next one begins, and vectors that are stored already are skipped.
    """
    context = current()
    settings = context.agent(message.agent)
    with (
        faults(settings.index_path),
        closing(IndexWriter.of(settings, clock=context.clock)) as writer,
        claimed(writer.connection, message.token, context.clock) as claim,
    ):
        if claim is not None:
            state = claim.batch.state
            row = identities.by_id(writer.connection, claim.batch.identity_id)
            assert row is not None
            lifecycle = Lifecycle(
                claim=claim,
                accounts=writer.accounts,
                budget=writer.budget,
                api=partial(context.keep("batch apis", BatchApis).of, settings, row.identity, row.base_url),
                identity=row.identity,
                agent=message.agent,
                settings=settings.memory.remote.batch,
                should_stop=context.stopping.is_set,
            )
            try:
                lifecycle.advance()
            except ClaimLost as error:
                _LOG.warning("batch.claim_lost", batch=message.token, reason=error.message)
            except Interrupted:
                # The next process goes on at once.
                claim.record(due=context.clock.now())
            except MemlineError:
                raise
            except Exception as error:
                # The boundary of the process: whatever it was, the texts must not wait for it for ever.
                lifecycle.record_failure(f"{type(error).__name__}: {error}")
                raise
            finally:
                _LOG.info(
                    "batch.advanced",
                    batch=message.token,
                    state_before=state,
                    state=claim.batch.state,
                    outcome=claim.batch.outcome,
                    job=claim.batch.job_id,
                    provider_state=claim.batch.provider_state,
                    rows=claim.batch.rows,
                    stored=claim.batch.stored,
                    failed=claim.batch.failed,
                    error=claim.batch.error,
                )
    # The dispatcher goes on with what the batch left.
    send(Sweep(agent=message.agent))
