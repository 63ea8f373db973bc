"""Removing what a batch left at its provider, and closing it."""

from __future__ import annotations

from shared.clock import Clock
from shared.embedders.batch import BatchApi, BatchLook
from shared.errors import ProviderError
from shared.index.batch_claims import Claim

#: Times the removal is tried; seconds until the second time, three times as long each further time, at most.
MAX_TRIES, FIRST_WAIT_S, LONGEST_WAIT_S = 8, 10.0, 3_600.0

#: More uploads of one batch than this are not looked for.
_MAX_EXTRA = 5


def clean(claim: Claim, api: BatchApi, *, clock: Clock) -> None:
    """Remove the files of a batch that is over at the provider, and close it.

    A job that was given up is ended first. What cannot be removed in the end is said in `error`.
    """
    batch = claim.batch
    try:
        look = _last_look(claim, api)
        if look is not None and look.state == "running":
            api.cancel(look.id)
            _clean_later(claim, "the job still runs at the provider", clock)
            return
        api.clean_up(look, file_id=batch.file_id)
        if batch.uploads > 1 or (batch.calling_at and not batch.file_id):
            for _ in range(_MAX_EXTRA):
                extra = api.find_upload(batch.token)
                if extra is None:
                    break
                api.clean_up(None, file_id=extra)
    except ProviderError as error:
        _clean_later(claim, error.message, clock)
        return
    claim.record(state="closed", closed_at=clock.now())


def _last_look(claim: Claim, api: BatchApi) -> BatchLook | None:
    batch = claim.batch
    if not batch.job_id:
        # A create without an answer: perhaps there is a job.
        return api.find(batch.token) if batch.calling_at and batch.file_id else None
    try:
        return api.look(batch.job_id)
    except ProviderError as error:
        if error.status == 404:
            return None
        raise


def _clean_later(claim: Claim, error: str, clock: Clock) -> None:
    batch = claim.batch
    now = clock.now()
    attempts = batch.attempts + 1
    if attempts >= MAX_TRIES:
        left = f"files of this batch were left at the provider: {error}"
        claim.record(state="closed", closed_at=now, error=f"{batch.error}; {left}" if batch.error else left)
        return
    claim.record(attempts=attempts, due=now + min(FIRST_WAIT_S * 3.0 ** (attempts - 1), LONGEST_WAIT_S))
