"""Tell a command that waits for vectors which of them come by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memline.shared.batches import outcomes, planning
from memline.shared.config.schema import Batch as BatchSettings
from memline.shared.index import batches
from memline.shared.index.batches import FAILURES, Batch
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection


@value
class OpenBatches:
    """The open batches of an identity, as a command sees them that waits for its vectors."""

    #: Those that the provider has and that were polled since the command began.
    at_provider: tuple[Batch, ...] = ()
    #: Their texts that are still to come, and texts that wait for a place among the open batches.
    texts: int = 0
    queued: int = 0
    #: Whether another one is on its way to the provider, is being stored or cleaned up: a matter of moments.
    is_busy: bool = False
    #: Why a step of one of them failed that is tried again; empty when nothing is wrong.
    delayed: str = ""
    #: One that waits for the operator.
    blocked: Batch | None = None

    def may_leave(self, settings: BatchSettings) -> bool:
        """Tell whether a command need not wait for what the provider has."""
        return not settings.wait or self.blocked is not None


def open_batches(
    connection: Connection, identity_id: int, settings: BatchSettings, *, since: float
) -> OpenBatches:
    """Read the open batches of an identity. `since`: when the command began."""
    ours = [batch for batch in batches.open_batches(connection) if batch.identity_id == identity_id]
    unfinished = [batch for batch in ours if batch.state in (*batches.UNFINISHED, "collecting")]
    blocked = next((batch for batch in unfinished if batch.action), None)
    at_provider = tuple(batch for batch in unfinished if batch.action or _was_polled(batch, since))
    is_full = sum(batch.is_unfinished for batch in ours) >= settings.concurrency
    return OpenBatches(
        at_provider=at_provider,
        texts=sum(batches.texts_awaited(connection, batch.token) for batch in at_provider),
        queued=planning.count_waiting(connection, identity_id, settings.min_texts) if is_full else 0,
        # One whose files the provider does not let go is left to the next process.
        is_busy=any(
            batch not in at_provider and (batch.state != "cleaning" or not batch.attempts) for batch in ours
        ),
        delayed=next((batch.error for batch in unfinished if batch.error), ""),
        blocked=blocked,
    )


def failed_since(connection: Connection, identity_id: int, since: float) -> tuple[Batch, str] | None:
    """Return the last batch of an identity that failed since then, and how the rest of its texts was sent."""
    later = ""
    for batch in batches.latest(connection, outcomes.KEPT):
        if batch.identity_id != identity_id:
            continue
        if batch.outcome in FAILURES and (batch.is_open or batch.closed_at >= since):
            return batch, later or "requests"
        if batch.outcome in ("done", batches.PARTIAL):
            later = "another batch"
    return None


def _was_polled(batch: Batch, since: float) -> bool:
    """Tell whether the provider has it, is working on it and has been told what there is to tell."""
    is_told = bool(batch.cancelled_at) or not batch.cancel_requested_at
    return batch.state == "submitted" and is_told and max(batch.submitted_at, batch.polled_at) >= since
