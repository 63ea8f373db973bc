"""Bringing a batch to its provider: the file, then the job; each step is on record before the next begins.

A crash or a lost answer leaves `calling_at`: then the provider is first asked, by the tag, whether the call
had its effect. So there is one job a batch, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from shared.embedders.batch import BatchApi, BatchLook, BatchRow
from shared.errors import ProviderError
from shared.index.batch_claims import Claim
from shared.index.batch_over import MAX_TRIES, Interrupted, action_of, over, put_off_s, verdict_of
from shared.index.batches import Verdict
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.clock import Clock

#: Texts read from the index at a time.
_PAGE_ROWS = 500

#: Seconds a claim holds while the file is sent, which gives no sign of life: 200 MB at 30 kB/s.
UPLOAD_CLAIM_S = 7_200.0

#: Seconds from the begin of a create whose answer is not known until the provider's list is trusted: the job
#: may be made after our process was killed.
SETTLE_S = 10.0

#: Shortest time between two looks, and the longest unless the setting is longer.
MIN_POLL_S, MAX_POLL_S = 0.05, 60.0

#: Seconds after which a batch that nobody waits for is given up: twice the longest window of a provider.
MAX_AGE_S = 48 * 3_600.0


@value
class Timing:
    """The settings of `remote.batch` that say when."""

    poll_s: float
    #: 0: nobody waits, so the provider's own window is what ends it.
    timeout_s: float


def submit(
    claim: Claim,
    api: BatchApi,
    connection: Connection,
    *,
    agent: str,
    timing: Timing,
    clock: Clock,
    should_stop: Callable[[], bool],
) -> bool:
    """Bring a batch to its provider; True when it is over instead, and its texts go out again."""
    try:
        return _submit(claim, api, connection, agent, timing, clock, should_stop)
    except ProviderError as error:
        return _failed(claim, error, timing, clock)


def _submit(
    claim: Claim,
    api: BatchApi,
    connection: Connection,
    agent: str,
    timing: Timing,
    clock: Clock,
    should_stop: Callable[[], bool],
) -> bool:
    batch = claim.batch
    token = batch.token
    is_in_doubt = bool(batch.calling_at)
    if not batch.file_id:
        if batch.cancel_asked:
            return over(claim, "cancelled", Verdict.NONE, batch.cancel_reason, clock)
        file_id = api.find_upload(token) if is_in_doubt else None
        if file_id is None:
            if not _is_any_needed(connection, token):
                return over(claim, "cancelled", Verdict.NONE, "its texts are gone", clock)
            claim.record(calling_at=clock.now(), uploads=batch.uploads + 1)
            file_id = api.upload(_rows(connection, claim, should_stop), tag=token)
        batch = claim.record(state="uploaded", file_id=file_id, calling_at=0.0)
        is_in_doubt = False
    look: BatchLook | None = None
    if is_in_doubt:
        wait_s = batch.calling_at + SETTLE_S - clock.now()
        if wait_s > 0:
            claim.record(due=clock.now() + wait_s)
            return False
        look = api.find(token)
    if look is None:
        if batch.cancel_asked:
            return over(claim, "cancelled", Verdict.NONE, batch.cancel_reason, clock)
        claim.record(calling_at=clock.now())
        look = api.create(batch.file_id, tag=token, agent=agent)
    now = clock.now()
    poll_s = max(timing.poll_s, MIN_POLL_S)
    claim.record(
        state="submitted",
        job_id=look.id,
        said=look.said,
        calling_at=0.0,
        submitted_at=now,
        deadline=now + (timing.timeout_s or MAX_AGE_S),
        # What it was created as tells when it is looked at first: a fast provider is done already.
        due=now if look.state != "running" else now + poll_s,
        wait_s=poll_s,
        attempts=0,
        error="",
        action="",
    )
    return False


def _failed(claim: Claim, error: ProviderError, timing: Timing, clock: Clock) -> bool:
    """What follows a call that failed: the same again later, or the end of the batch."""
    batch = claim.batch
    if not error.maybe_done:
        # It certainly had no effect, so nothing has to be looked for.
        batch = claim.record(calling_at=0.0)
    if error.kind not in ("later", "broken"):
        return over(claim, "failed", verdict_of(error), error.message, clock, action=error.hint)
    is_told = error.retry_after_s is not None and error.retry_after_s >= 1
    attempts = batch.attempts + (not is_told)
    # A provider that says "later" for ever would keep the texts from everybody else.
    is_too_late = clock.now() >= batch.created_at + (timing.timeout_s or MAX_AGE_S)
    if attempts >= MAX_TRIES or is_too_late:
        return over(claim, "failed", Verdict.FAILED, error.message, clock, action=error.hint)
    wait_s = put_off_s(attempts, error)
    due = clock.now() + wait_s
    claim.record(attempts=attempts, error=error.message, action=action_of(error), due=due)
    return False


def _is_any_needed(connection: Connection, token: str) -> bool:
    row = connection.execute(
        "SELECT 1 FROM vectors WHERE lease = ? AND EXISTS (SELECT 1 FROM chunks"
        " WHERE chunks.text_hash = vectors.text_hash) LIMIT 1",
        (token,),
    ).fetchone()
    return row is not None


def _rows(connection: Connection, claim: Claim, should_stop: Callable[[], bool]) -> Iterator[BatchRow]:
    """The texts of a batch, a page at a time: it may be 200 MB, and a read that lasts minutes would keep the
    write-ahead log from being taken in."""
    last = 0
    while True:
        page = connection.execute(
            "SELECT id, text_hash,"
            " (SELECT text FROM chunks WHERE chunks.text_hash = vectors.text_hash LIMIT 1)"
            " FROM vectors WHERE lease = ? AND id > ? ORDER BY id LIMIT ?",
            (claim.batch.token, last, _PAGE_ROWS),
        ).fetchall()
        if not page:
            claim.record(hold_s=UPLOAD_CLAIM_S, attempts=claim.batch.attempts)
            return
        if should_stop():
            raise Interrupted("this process was told to stop")
        claim.renew()
        last = page[-1][0]
        for _, digest, text in page:
            # A text whose last chunk went since it was leased needs no vector.
            if text is not None:
                yield BatchRow(key=digest.hex(), text=text)
