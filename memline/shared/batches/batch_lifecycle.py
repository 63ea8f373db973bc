"""Carry one batch from its texts to their vectors: upload, create, poll, collect, clean up.

    intent ──upload─► uploaded ──create─► submitted ──poll…─► collecting ──store─► cleaning ──► closed
       │                 │                    │                   │                   ▲
       └─────────────────┴── refused, cancelled, given up, lost ──┴───────────────────┘

A batch that is finished has an outcome and is `cleaning`: its breaker has been told, the texts it did not
bring are wanted again, and its files are removed at the provider.

Every step is on record before the next one begins, so a step may be repeated after a crash, and each may
run twice or late: the claim lets one process work at a time, and vectors are upserts. An upload or a
create whose answer was lost leaves `call_started_at`. A file is sent again then, which costs nothing; of a
job the provider is first asked, by the tag, whether there is one. So a batch has one job, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from memline.shared.batches import batch_end
from memline.shared.batches.job_rows import BatchRow
from memline.shared.batches.open_batches import Claim
from memline.shared.batches.remote import BatchApi, BatchJob
from memline.shared.config.schema import Batch as BatchSettings
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import MemlineError, ProviderBrokenAnswer, ProviderError
from memline.shared.index import batches
from memline.shared.index.accounts import Accounts
from memline.shared.index.batches import LOST, NOT_NEEDED, PARTIAL, SWITCHED_OFF, TIMED_OUT, TOO_LONG
from memline.shared.index.driver import transaction
from memline.shared.index.rows import LearnedCaps, VectorRow
from memline.shared.scheduling import embed_results, model_change
from memline.shared.scheduling.budget import BATCH, Budget, Charge
from memline.shared.scheduling.embed_results import Failure
from memline.shared.values import value

#: Times in a row a step fails before the batch is given up. With the waits between them, half a minute.
STEP_ATTEMPTS = 5

#: Seconds until a step that failed is tried again; doubled each further time.
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 60.0

#: Seconds from the begin of a create whose answer is unknown until the provider's list is trusted: the
#: job may be made after our process was killed.
LISTED_AFTER_S = 10.0

#: Shortest time between two polls, the longest unless the setting is longer, and how each grows from the
#: last.
MIN_POLL_S, MAX_POLL_S, POLL_GROWTH = 0.05, 60.0, 1.5

#: Seconds after which a batch that no command waits for is given up: twice the longest window of a provider.
MAX_AGE_S = 48 * 3_600.0

#: Seconds a provider may take to cancel a job, or to answer at its end, before its rows are given up.
MAX_CANCEL_S = 900.0

#: Seconds a claim holds while the file is sent, which cannot renew it: 200 MB at 30 kB/s.
UPLOAD_CLAIM_S = 7_200.0

#: Times a file is read again that has fewer rows than its provider made: the answer may have been cut off.
SHORT_TRIES = 2

#: HTTP statuses of a job that its provider does not know, and of results that will not come back.
_GONE = frozenset({404, 410})


class Interrupted(MemlineError):
    """This process was told to stop in the middle of a long step; the next one goes on."""


@value(frozen=False)
class Lifecycle:
    """The steps of one claimed batch."""

    claim: Claim
    accounts: Accounts
    budget: Budget
    #: Raises ProviderStop when these settings do not lead to the provider of the batch.
    api: Callable[[], BatchApi]
    identity: Identity
    agent: str
    settings: BatchSettings
    should_stop: Callable[[], bool] = lambda: False

    def advance(self) -> None:
        """Do every step whose time has come. Raises ClaimLost, and Interrupted when told to stop."""
        steps = {
            "intent": (self._upload, self._not_submitted),
            "uploaded": (self._create, self._not_submitted),
            "submitted": (self._poll, self._not_polled),
            "collecting": (self._collect, self._not_collected),
            "cleaning": (self._clean, self._not_cleaned),
        }
        goes_on = True
        while goes_on and self.claim.batch.state in steps:
            self._check_stop()
            step, failed = steps[self.claim.batch.state]
            try:
                goes_on = step()
            except ProviderError as error:
                goes_on = failed(error)

    def record_failure(self, error: str) -> None:
        """Note that a step ended with an error of our own; after too many the batch is given up."""
        batch = self.claim.batch
        attempts = batch.attempts + 1
        if batch.state == "cleaning" or attempts < STEP_ATTEMPTS:
            self._wait(LONGEST_WAIT_S, attempts=attempts, error=error)
        else:
            # What a job made is paid for: its texts are not put into another one, to end alike.
            self._finish(LOST if batch.state == "collecting" else "failed", error)

    # Steps. Each returns whether the next one may begin at once.

    def _upload(self) -> bool:
        if self._is_cancelled():
            return self._finish("cancelled", self.claim.batch.cancel_reason)
        batch, api = self.claim.batch, self.api()
        if not batches.is_any_text_needed(self.claim.connection, batch.token):
            return self._finish("cancelled", NOT_NEEDED)
        rows = batches.texts_left(self.claim.connection, batch.token)
        self.claim.record(call_started_at=self.claim.clock.now(), uploads=batch.uploads + 1, rows=rows)
        # Also if the process that planned it died before it counted.
        account = self.accounts.of(self.identity.provider)
        charge = Charge(identity=self.identity, account=account, mode=BATCH)
        tokens = batches.tokens_left(self.claim.connection, batch.token)
        self.budget.resize(charge, batch.token, tokens, self.claim.clock.now())
        with self._making():
            file_id = api.upload(self._rows(), tag=batch.token)
        self.claim.record(state="uploaded", file_id=file_id, call_started_at=0.0)
        return True

    def _create(self) -> bool:
        batch, api = self.claim.batch, self.api()
        job: BatchJob | None = None
        if batch.call_started_at:
            wait_s = batch.call_started_at + LISTED_AFTER_S - self.claim.clock.now()
            if wait_s > 0:
                return self._wait(wait_s)
            job = api.find(batch.token, file_id=batch.file_id)
            if job is None:
                # Now it is certain that no job was made.
                batch = self.claim.record(call_started_at=0.0)
                if batch.attempts >= STEP_ATTEMPTS:
                    return self._finish("failed", batch.error)
        if job is None:
            if self._is_cancelled():
                return self._finish("cancelled", self.claim.batch.cancel_reason)
            self.claim.record(call_started_at=self.claim.clock.now())
            with self._making():
                job = api.create(batch.file_id, tag=batch.token, agent=self.agent)
        now = self.claim.clock.now()
        self.claim.record(
            state="submitted",
            job_id=job.id,
            provider_state=job.provider_state,
            call_started_at=0.0,
            submitted_at=now,
            deadline=now + self._timeout_s,
            wait_s=self._poll_s,
            attempts=0,
            error="",
            action="",
        )
        # A fast provider is done already.
        return job.state != "running" or self._wait(self._poll_s)

    def _poll(self) -> bool:
        batch, now = self.claim.batch, self.claim.clock.now()
        if batch.cancel_requested_at and not batch.cancelled_at:
            job = self.api().cancel(batch.job_id)
            # The end comes soon, however rare the polls have become.
            self.claim.record(cancelled_at=now, wait_s=self._poll_s)
        else:
            job = self.api().get_job(batch.job_id)
        batch = self.claim.record(
            polled_at=now,
            provider_state=job.provider_state,
            rows_done=job.rows_done,
            rows_failed=job.rows_failed,
            attempts=0,
            error=job.reason,
            action="",
        )
        if job.state != "running":
            self.claim.record(state="collecting")
            return True
        if now >= self._ends_at:
            if batch.cancel_requested_at:
                return self._give_up()
            # The next round of this step tells the provider.
            self.claim.record(cancel_requested_at=now, cancel_reason=TOO_LONG)
            return True
        wait_s = min(max(batch.wait_s, MIN_POLL_S), max(MAX_POLL_S, self._poll_s))
        return self._wait(min(wait_s, self._ends_at - now), wait_s=wait_s * POLL_GROWTH)

    def _collect(self) -> bool:
        """Store what a job made. What an earlier run stored is skipped, and so are rows of other jobs."""
        batch = self.claim.batch
        job = self.api().get_job(batch.job_id)
        if job.state == "running":
            # From a server that lags behind the one that said it was final: nothing is there to be read yet.
            raise ProviderBrokenAnswer(f"job {job.id} was final and is {job.provider_state} now")
        left = {digest.hex(): digest for digest in batches.hashes_left(self.claim.connection, batch.token)}
        if not left and not batch.stored and not batch.failed:
            return self._finish("cancelled", NOT_NEEDED)
        results = self.api().results(job) if job.output or job.errors else ()
        good, errors = batch_end.sort_results(
            results, left, is_done=job.state == "done", keep=self._keep, renew=self.claim.renew
        )
        if good < job.rows_done and batch.attempts < SHORT_TRIES:
            raise ProviderBrokenAnswer(f"of the {job.rows_done} rows of job {job.id} {good} came")
        # When no row is good, a refusal says nothing of a text.
        is_any_good = bool(self.claim.record().stored)
        for (kind, message, hint), hashes in errors.items():
            failure = Failure(kind=kind if is_any_good else "broken", error=message, action=hint)
            for start in range(0, len(hashes), batch_end.STORE_ROWS):
                some, now = hashes[start : start + batch_end.STORE_ROWS], self.claim.clock.now()
                embed_results.record_failure(
                    self.accounts, self.identity, batch.token, some, failure, LearnedCaps(), now
                )
        model_change.switch_when_complete(self.claim.connection)
        batch = self.claim.record()
        first_error = next((message for _, message, _ in errors), "")
        if job.state == "done":
            if not batch.stored:
                return self._finish("failed", first_error or "the job brought no row of ours")
            return self._finish(PARTIAL if left or batch.failed else "done", "")
        if batch.cancel_reason == TOO_LONG and job.state == "cancelled":
            return self._give_up()
        if job.state == "cancelled":
            return self._finish("cancelled", batch.cancel_reason or "cancelled at the provider")
        reason = job.reason or batch.error or first_error or f"job {job.id}: {job.state}"
        return self._finish(job.state, reason, cause=job.error)

    def _clean(self) -> bool:
        """Give back what a finished batch did not cost and the texts it did not bring; remove its files."""
        batch = self.claim.batch
        # Not where its end is recorded, or a process that dies in between leaves all of it counted for good.
        self.budget.settle(batch.token, self._paid_tokens(batch.outcome))
        batch_end.give_back(self.claim.connection, batch, self.claim.clock.now())
        if batch.uploads:
            api = self.api()
            job: BatchJob | None = None
            try:
                if batch.job_id:
                    job = api.get_job(batch.job_id)
                elif batch.call_started_at and batch.file_id:
                    # A create without an answer: perhaps there is a job.
                    job = api.find(batch.token, file_id=batch.file_id)
            except ProviderError as error:
                if error.status != 404 or not batch.job_id:
                    raise
            if job is not None and job.state == "running":
                # It was given up.
                api.cancel(job.id)
                raise ProviderBrokenAnswer("the job still runs at the provider")
            api.clean_up(job, file_id=batch.file_id)
        self.claim.record(state="closed", closed_at=self.claim.clock.now())
        return False

    # What follows a call that failed.

    def _not_submitted(self, error: ProviderError) -> bool:
        batch = self.claim.batch
        is_told = error.retry_after_s is not None and error.retry_after_s >= 1
        attempts = batch.attempts + (not is_told)
        is_in_doubt = bool(batch.call_started_at and batch.file_id)
        # A provider that says "later" for ever would keep the texts from requests. While a job may exist that
        # is paid for, only the provider's list ends the wait before its time.
        since = batch.call_started_at if is_in_doubt else batch.created_at
        is_hopeless = attempts >= STEP_ATTEMPTS or error.kind not in ("later", "broken")
        if self.claim.clock.now() >= since + self._timeout_s or (is_hopeless and not is_in_doubt):
            return self._finish("failed", error.message, cause=error)
        return self._retry(attempts, error)

    def _not_polled(self, error: ProviderError) -> bool:
        batch, now = self.claim.batch, self.claim.clock.now()
        attempts = batch.attempts + 1
        if error.status in _GONE:
            # A server lags, a proxy answers, or the key is of another project: the job may still cost money.
            known_at = max(batch.submitted_at, batch.polled_at)
            until = min(batch.deadline, known_at + self.settings.timeout_minutes * 60.0)
            is_often = attempts >= STEP_ATTEMPTS
            if now >= self._given_up_at or (is_often and (now >= until or batch.cancel_requested_at)):
                return self._finish(LOST, error.message)
            hint = f"set back the key that made the job, or run: memline batch cancel {batch.token[:8]}"
            return self._retry(attempts, error, action=hint if is_often else "")
        if now >= (self._ends_at if error.kind == "stop" else self._given_up_at):
            self.claim.record(error=error.message)
            return self._give_up()
        if now >= batch.deadline and not batch.cancel_requested_at:
            # What the job has done by now is paid for, and can be read once it has ended.
            self.claim.record(cancel_requested_at=now, cancel_reason=TOO_LONG)
        return self._retry(attempts, error)

    def _not_collected(self, error: ProviderError) -> bool:
        batch = self.claim.batch
        attempts = batch.attempts + 1
        if batch.cancel_requested_at and not batch.cancelled_at:
            return self._finish("cancelled", batch.cancel_reason)
        # What the job made is paid for, so it is not given up before its time.
        is_worth_waiting = error.status not in _GONE and batch.cancel_reason in ("", TOO_LONG)
        if attempts < STEP_ATTEMPTS or (is_worth_waiting and self.claim.clock.now() < self._given_up_at):
            return self._retry(attempts, error)
        return self._finish(LOST, error.message, action=error.hint)

    def _not_cleaned(self, error: ProviderError) -> bool:
        batch = self.claim.batch
        attempts = batch.attempts + 1
        if attempts < STEP_ATTEMPTS:
            return self._wait(_backoff_s(attempts), attempts=attempts)
        left = f"{batches.FILES_LEFT}: {error.message}"
        words = f"{batch.error}; {left}" if batch.error else left
        self.claim.record(state="closed", closed_at=self.claim.clock.now(), error=words)
        return False

    # The end of a batch.

    def _give_up(self) -> bool:
        """Finish a batch that took too long, or whose job its provider did not cancel in time."""
        batch = self.claim.batch
        if batch.cancel_requested_at and batch.cancel_reason != TOO_LONG:
            return self._finish("cancelled", batch.cancel_reason)
        error = batch.error or f"job {batch.job_id} was not done in time ({batch.provider_state})"
        hint = "set remote.batch.timeoutMinutes higher, or remote.batch.wait to false"
        return self._finish(TIMED_OUT, error, action=hint)

    def _finish(
        self, outcome: str, error: str, *, action: str = "", cause: ProviderError | None = None
    ) -> bool:
        """Write down the outcome and tell the breaker, in one transaction; always True."""
        now, action = self.claim.clock.now(), action or (cause.hint if cause else "")
        cost = self.budget.cost_of(self.claim.batch.token, self._paid_tokens(outcome))
        with transaction(self.claim.connection):
            batch = self.claim.record(
                state="cleaning",
                outcome=outcome,
                error=error,
                action=action,
                due=now,
                attempts=0,
                cost=cost,
            )
            batch_end.tell_breaker(self.accounts, self.identity.provider, batch, cause, self.settings, now)
        return True

    def _paid_tokens(self, outcome: str) -> int:
        reserved = self.budget.reserved(self.claim.batch.token)
        return batch_end.paid_tokens(self.claim.connection, self.claim.batch, outcome, reserved)

    # Parts of steps.

    @property
    def _poll_s(self) -> float:
        return max(self.settings.poll_interval_ms / 1000, MIN_POLL_S)

    @property
    def _timeout_s(self) -> float:
        return self.settings.timeout_minutes * 60.0 if self.settings.wait else MAX_AGE_S

    @property
    def _ends_at(self) -> float:
        """When a submitted batch is cancelled at its provider, or given up after that."""
        return self._given_up_at if self.claim.batch.cancelled_at else self.claim.batch.deadline

    @property
    def _given_up_at(self) -> float:
        """When a provider is waited for no longer that does not cancel a job, or does not answer."""
        return (self.claim.batch.cancelled_at or self.claim.batch.deadline) + MAX_CANCEL_S

    def _check_stop(self) -> None:
        if self.should_stop():
            raise Interrupted("this process was told to stop")

    def _wait(self, seconds: float, **columns: Any) -> bool:
        """Record when the next step is due; always False."""
        self.claim.record(due=self.claim.clock.now() + seconds, **columns)
        return False

    def _retry(self, attempts: int, error: ProviderError, *, action: str = "") -> bool:
        """Record that the step is tried again with backoff, or when the provider says; always False."""
        wait_s = max(_backoff_s(attempts), error.retry_after_s or 0.0)
        # Nothing that an operator does brings back a file that is gone.
        action = action or (error.hint if error.kind == "stop" and error.status not in _GONE else "")
        return self._wait(wait_s, attempts=attempts, error=error.message, action=action)

    @contextmanager
    def _making(self) -> Iterator[None]:
        """End the doubt about a call that makes something at the provider when it certainly made nothing."""
        try:
            yield
        except ProviderError as error:
            if not error.maybe_done:
                self.claim.record(call_started_at=0.0)
            raise

    def _is_cancelled(self) -> bool:
        """Tell whether a batch that its provider does not have yet is to be cancelled."""
        if not self.settings.enabled and not self.claim.batch.cancel_requested_at:
            self.claim.record(cancel_requested_at=self.claim.clock.now(), cancel_reason=SWITCHED_OFF)
        return bool(self.claim.batch.cancel_requested_at)

    def _rows(self) -> Iterator[BatchRow]:
        """Read the rows of the uploaded file, a page at a time: they may be 200 MB."""
        for page in batches.pages_of_texts(self.claim.connection, self.claim.batch.token):
            self._check_stop()
            self.claim.renew()
            yield from (BatchRow(key=digest.hex(), text=text) for digest, text in page)
        self.claim.record(hold_s=UPLOAD_CLAIM_S)

    def _keep(self, piece: list[VectorRow]) -> None:
        """Store a piece of the results, in one short transaction."""
        self._check_stop()
        token, now = self.claim.batch.token, self.claim.clock.now()
        embed_results.store_vectors(self.accounts, self.identity, token, piece, LearnedCaps(), now)


def _backoff_s(attempts: int) -> float:
    return float(min(FIRST_WAIT_S * 2.0 ** min(max(attempts - 1, 0), 30), LONGEST_WAIT_S))
