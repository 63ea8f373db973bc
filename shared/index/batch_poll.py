"""Looking at a batch that its provider works on: again later, until it is final or took too long."""

from __future__ import annotations

from shared.clock import Clock
from shared.embedders.batch import BatchApi, BatchLook
from shared.errors import ProviderError
from shared.index.batch_claims import Claim
from shared.index.batch_over import TIMED_OUT, action_of, put_off_s
from shared.index.batch_submit import MAX_POLL_S, MIN_POLL_S, Timing

#: Each wait between two looks is so many times the one before.
GROWTH = 1.5

#: Seconds a provider that was told to end a job may take to do so, before its rows are given up.
CANCEL_PATIENCE_S = 900.0

#: Why a batch is ended that took too long.
_TOO_LONG = "remote.batch.timeoutMinutes is over"


def poll(claim: Claim, api: BatchApi, *, timing: Timing, clock: Clock) -> BatchLook | None:
    """Look at a job once; the job when it is final, or when it is given up (then without files)."""
    batch = claim.batch
    while True:
        now = clock.now()
        try:
            if batch.cancel_asked and not batch.cancelled_at:
                look = api.cancel(batch.job_id)
                # The end comes soon, however rare the looks have become.
                batch = claim.record(cancelled_at=now, wait_s=timing.poll_s)
            else:
                look = api.look(batch.job_id)
        except ProviderError as error:
            return _not_seen(claim, error, clock)
        batch = claim.record(
            looked_at=now,
            said=look.said,
            rows_done=look.rows_done,
            rows_failed=look.rows_failed,
            attempts=0,
            error=look.reason,
            action="",
        )
        if look.state != "running":
            outcome = TIMED_OUT if batch.cancel_reason == _TOO_LONG else look.state
            claim.record(state="collecting", outcome=outcome)
            return look
        if not batch.cancel_asked and now >= batch.deadline:
            batch = claim.record(cancel_asked=now, cancel_reason=_TOO_LONG)
            continue
        if batch.cancelled_at and now >= batch.cancelled_at + CANCEL_PATIENCE_S:
            return _given_up(claim)
        _look_again(claim, timing, clock)
        return None


def _look_again(claim: Claim, timing: Timing, clock: Clock) -> None:
    batch = claim.batch
    poll_s = max(timing.poll_s, MIN_POLL_S)
    wait_s = min(max(batch.wait_s, MIN_POLL_S), max(MAX_POLL_S, poll_s))
    claim.record(due=min(clock.now() + wait_s, _ends(claim)), wait_s=wait_s * GROWTH)


def _not_seen(claim: Claim, error: ProviderError, clock: Clock) -> BatchLook | None:
    """A look that failed says nothing of the batch, unless the provider knows no such job."""
    batch = claim.batch
    now = clock.now()
    if error.status == 404:
        claim.record(state="collecting", outcome="lost", error=error.message)
        return _nothing(batch.job_id)
    attempts = batch.attempts + 1
    ends = _ends(claim)
    if now >= ends:
        claim.record(error=error.message)
        return _given_up(claim)
    due = min(now + put_off_s(attempts, error), max(ends, now + 1))
    claim.record(attempts=attempts, error=error.message, action=action_of(error), due=due)
    return None


def _ends(claim: Claim) -> float:
    """When the batch is given up, or told to end."""
    batch = claim.batch
    return batch.cancelled_at + CANCEL_PATIENCE_S if batch.cancelled_at else batch.deadline


def _given_up(claim: Claim) -> BatchLook:
    batch = claim.batch
    error = batch.error or f"job {batch.job_id} was not ended by its provider ({batch.said})"
    outcome = "cancelled" if batch.cancel_asked and batch.cancel_reason != _TOO_LONG else TIMED_OUT
    claim.record(state="collecting", outcome=outcome, error=error)
    return _nothing(batch.job_id)


def _nothing(job_id: str) -> BatchLook:
    """A job of which no row will be read."""
    return BatchLook(id=job_id, state="failed", said="")
