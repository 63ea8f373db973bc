"""Carry a batch from its texts to their vectors: a row says how far it is, any process goes on from there.

    intent ──upload──► uploaded ──create──► submitted ──poll…──► collecting ──store──► closed

Every step is on record before the next one begins and may run twice. A create whose answer was lost leaves
`call_started_at`; then the provider is asked for the tag before a second one. An upload is sent again, which
costs nothing. The caller holds the batches of the index, so that one process at a time works on them.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import IO

import msgspec

from memline.shared.batches.wire import KINDS, Job, OpenAI, key_and_row, maybe_made
from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.config.schema import Batch as BatchSettings
from memline.shared.embedders.choice import choose_for_identity
from memline.shared.embedders.protocol import unit_vector
from memline.shared.embedders.provider_errors import is_of_account
from memline.shared.errors import ProviderBrokenAnswer, ProviderError
from memline.shared.index import batches
from memline.shared.index.accounts import Accounts
from memline.shared.index.batches import FAILURES, LOST, PARTIAL, Batch
from memline.shared.index.driver import transaction
from memline.shared.index.identities import IdentityRow
from memline.shared.index.rows import VectorRow
from memline.shared.scheduling import health, leases, model_change
from memline.shared.scheduling.budget import BATCH, Budget, Charge, day_of
from memline.shared.scheduling.health import Failure

#: Times in a row a step fails before the batch is given up, if no job may exist; with the waits between them,
#: half a minute. Times as well that a short file is read again: the answer may have been cut off.
STEP_ATTEMPTS, SHORT_TRIES = 5, 3

#: Seconds until a step that failed is tried again, doubled each further time, and at most; as between polls.
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 60.0

#: Seconds from the begin of a create whose answer is unknown until the provider's list is trusted.
LISTED_AFTER_S = 10.0

#: Seconds a provider may take to cancel a job, or to answer at its end, before the job is given up.
GIVE_UP_S = 900.0

#: Seconds after which a batch that no command waits for is cancelled: twice the longest window of a provider.
MAX_AGE_S = 48 * 3_600.0

#: Vectors stored at a time.
STORE_ROWS = 200

#: HTTP statuses of a job that its provider does not know, and of results that will not come back.
_GONE = (404, 410)

_NO_TROUBLE = {"attempts": 0, "error": "", "action": ""}

_TOO_LONG = "it took longer than remote.batch.timeoutMinutes"


class Life(msgspec.Struct, kw_only=True):
    """The steps of a batch."""

    accounts: Accounts
    budget: Budget
    settings: AgentSettings
    clock: Clock
    #: The batch, and the model of its texts.
    token: str
    model: IdentityRow

    def advance(self) -> None:
        """Do every step whose time has come."""
        steps = {
            "intent": self._intent,
            "uploaded": self._uploaded,
            "submitted": self._submitted,
            "collecting": self._collecting,
        }
        goes_on = True
        try:
            choice = choose_for_identity(self.settings, self.model.identity, self.model.base_url)
            with closing(KINDS[choice.provider](choice, self.clock)) as wire:
                while goes_on and (step := steps.get(self._row.state)):
                    goes_on = step(self._row, wire)
        except ProviderError as error:
            self._failed(self._row, error)
        except Exception as error:
            # The boundary of the process: whatever it was, the texts must not wait for it for ever.
            self._failed(self._row, ProviderBrokenAnswer(f"{type(error).__name__}: {error}"))
            raise

    # Steps. Each returns whether the next one may begin at once.

    def _intent(self, batch: Batch, wire: OpenAI) -> bool:
        with tempfile.TemporaryFile() as file:
            if batch.cancel_reason or not self._write(file, wire):
                return self._close("cancelled", batch.cancel_reason or "its texts are gone")
            file_id = wire.upload(file, batch.token)
        return self._record(state="uploaded", file_id=file_id, attempts=0)

    def _uploaded(self, batch: Batch, wire: OpenAI) -> bool:
        job: Job | None = None
        if batch.call_started_at:
            if (wait_s := batch.call_started_at + LISTED_AFTER_S - self.clock.now()) > 0:
                return self._wait(wait_s)
            job = wire.find(batch.token)
        if job is None:
            if batch.cancel_reason:
                return self._close("cancelled", batch.cancel_reason, wire)
            self._record(call_started_at=self.clock.now())
            try:
                job = wire.create(batch.file_id, batch.token, self.settings.agent)
            except ProviderError as error:
                if not maybe_made(error):
                    self._record(call_started_at=0.0)
                raise
        now, rules = self.clock.now(), self._rules
        limit_s = rules.timeout_minutes * 60.0 if rules.wait else MAX_AGE_S
        ends = {"call_started_at": 0.0, "deadline": now + limit_s}
        self._record(state="submitted", job_id=job.id, submitted_at=now, **ends, **_NO_TROUBLE)
        return job.state != "running" or self._wait(self._poll_s)

    def _submitted(self, batch: Batch, wire: OpenAI) -> bool:
        now = self.clock.now()
        if now >= batch.deadline and not batch.cancel_reason:
            return self._record(cancel_reason=_TOO_LONG)
        if batch.cancel_reason and not batch.cancelled_at:
            wire.cancel(batch.job_id)
            self._record(cancelled_at=now, deadline=now + GIVE_UP_S)
            return self._wait(self._poll_s)
        job = wire.job(batch.job_id)
        known = {"provider_state": job.provider_state, "rows_done": job.done}
        self._record(polled_at=now, **known, **_NO_TROUBLE)
        if job.state != "running":
            return self._record(state="collecting")
        if batch.cancelled_at and now >= batch.deadline:
            return self._close(_end_of(batch), f"job {job.id} was not cancelled in time", wire)
        # The longer it has taken, the rarer the polls.
        wait_s = max(self._poll_s, min((now - batch.submitted_at) / 4, LONGEST_WAIT_S))
        return self._wait(min(wait_s, max(batch.deadline - now, self._poll_s)))

    def _collecting(self, batch: Batch, wire: OpenAI) -> bool:
        """Store what a job made. What an earlier run stored is skipped, and so are rows of other jobs."""
        job = wire.job(batch.job_id)
        if job.state == "running":
            # From a server that lags behind the one that said it was final.
            raise ProviderBrokenAnswer(f"job {job.id} was final and is {job.provider_state} now")
        query = "SELECT lower(hex(text_hash)), text_hash FROM vectors WHERE lease = ?"
        left: dict[str, bytes] = dict(self.accounts.index.execute(query, (batch.token,)).fetchall())
        good, first_error, piece = 0, "", list[VectorRow]()
        for key, vector, error in self._results(job, wire):
            first_error = first_error or error
            good += bool(vector)
            if vector and (digest := left.pop(key, None)):
                piece.append(VectorRow(hash=digest, vector=vector))
            if len(piece) >= STORE_ROWS:
                left |= self._store(piece)
                piece = []
        left |= self._store(piece)
        if good < job.done and batch.attempts < SHORT_TRIES:
            raise ProviderBrokenAnswer(f"of the {job.done} rows of job {job.id} {good} came")
        model_change.switch_when_complete(self.accounts.index)
        outcome = job.state
        if outcome == "done":
            outcome = "failed" if not self._row.stored else PARTIAL if left else "done"
        elif outcome == "cancelled":
            outcome = _end_of(batch)
        error = batch.cancel_reason or job.reason or first_error or f"job {job.id} is {job.state}"
        return self._close(outcome, error if outcome != "done" else "", wire, job.outputs)

    # The end of a batch, and of a step that failed.

    def _close(
        self,
        outcome: str,
        error: str,
        wire: OpenAI | None = None,
        outputs: tuple[str, ...] = (),
        cause: ProviderError | None = None,
    ) -> bool:
        """End a batch: what it did not bring goes in requests, and its money is set right. Always False."""
        now, index, row = self.clock.now(), self.accounts.index, self._row
        with transaction(index):
            # Nothing is wrong with texts that were in no job, or whose job a person ended.
            is_tried = bool(row.job_id) and outcome != "cancelled"
            index.execute(
                "UPDATE vectors SET state = 'wanted', lease = NULL, due = 0, attempts = attempts + ?"
                " WHERE lease = ?",
                (is_tried, self.token),
            )
            action = cause.hint if cause else ""
            self._record(state="closed", outcome=outcome, error=error, action=action, closed_at=now)
            self._tell_breaker(outcome, error, cause, now)
        # What was made, as far as it is known, is paid for.
        is_unknown = bool(row.call_started_at) or row.state == "submitted"
        rows = row.rows if is_unknown else min(max(row.stored, row.rows_done), row.rows)
        paid = row.tokens * rows // max(row.rows, 1)
        identity = self.model.identity
        charge = Charge(identity=identity, account=self.accounts.of(identity.provider), mode=BATCH)
        self.budget.correct(charge, day_of(row.created_at), paid - row.tokens, 0 if paid else -1)
        if wire is not None:
            for file in filter(None, (row.file_id, *outputs)):
                wire.delete(file)
        return False

    def _tell_breaker(self, outcome: str, error: str, cause: ProviderError | None, now: float) -> None:
        mode, rules, kind = health.BATCH, health.batch_rules(self._rules), "unsent"
        # Without a status the provider was not asked: this process's settings do not lead to it.
        is_stop = cause is not None and cause.kind == "stop" and cause.status is not None
        if outcome in FAILURES:
            kind = "stop" if is_stop else "later"
            if is_stop and cause is not None and is_of_account(cause):
                mode, rules = health.REQUESTS, health.REQUEST_RULES
        action, is_probe = cause.hint if cause else "", mode == health.BATCH
        failure = Failure(kind=kind, error=error, action=action, is_probe=is_probe)
        change = partial(health.after_failure, failure=failure, now=now, rules=rules)
        is_good = outcome in ("done", PARTIAL)
        provider = self.model.identity.provider
        health.update(self.accounts, provider, mode, health.worked if is_good else change)

    def _failed(self, batch: Batch, error: ProviderError) -> None:
        """Try a step again, the later the oftener it failed; give the batch up when that is hopeless."""
        now, attempts = self.clock.now(), batch.attempts + 1
        is_worn_out = attempts >= STEP_ATTEMPTS
        is_gone = bool(batch.job_id) and error.status in _GONE
        if not batch.job_id and not batch.call_started_at:
            # There is no job, so another way costs nothing.
            if is_worn_out or error.kind not in ("later", "broken"):
                self._close("failed", error.message, cause=error)
                return
        else:
            is_over = now >= (batch.deadline or batch.created_at + MAX_AGE_S) + GIVE_UP_S
            is_useless = bool(batch.cancel_reason) or (is_gone and batch.state == "collecting")
            if is_over or (is_worn_out and is_useless):
                self._close(_end_of(batch) if batch.cancel_reason else LOST, error.message)
                return
        action = error.hint if error.kind == "stop" and not is_gone else ""
        if is_gone and is_worn_out:
            # A server lags, a proxy answers, or the key is of another project: the job may still cost money.
            action = f"set back the key that made the job, or run: memline jobs cancel {self.token[:8]}"
        wait_s = max(min(FIRST_WAIT_S**attempts, LONGEST_WAIT_S), error.retry_after_s or 0.0)
        self._record(attempts=attempts, error=error.message, action=action, due=now + wait_s)

    # Parts.

    def _write(self, file: IO[bytes], wire: OpenAI) -> int:
        """Write a line for each text that a chunk still needs; return how many."""
        count = 0
        query = (
            "SELECT lower(hex(text_hash)), text FROM vectors JOIN chunks USING (text_hash)"
            " WHERE lease = ? GROUP BY vectors.id ORDER BY vectors.id"
        )
        for key, text in self.accounts.index.execute(query, (self.token,)):
            line = json.dumps(wire.row(key, text), ensure_ascii=False, separators=(",", ":"))
            # A lone surrogate cannot be sent, and becomes a question mark.
            file.write(line.encode("utf-8", "replace") + b"\n")
            count += 1
        file.seek(0)
        return count

    def _results(self, job: Job, wire: OpenAI) -> Iterator[tuple[str, bytes, str]]:
        """Yield key and vector of each row, or what is wrong; a spoilt row ends none of the others."""
        for name in job.outputs:
            for line in wire.lines(name):
                key, row = key_and_row(line)
                try:
                    yield key, unit_vector(wire.vector(row), dims=None) if key else b"", ""
                except ProviderError as error:
                    yield key, b"", error.message

    def _store(self, piece: list[VectorRow]) -> dict[str, bytes]:
        """Store vectors; return those of other dimensions than most, which come again in a request."""
        sizes = Counter(len(row.vector) for row in piece)
        usual = max(sizes, key=sizes.__getitem__, default=0)
        if good := [row for row in piece if len(row.vector) == usual]:
            now, identity = self.clock.now(), self.model.identity
            leases.store_answer(self.accounts, identity, self.token, now, rows=good)
        return {row.hash.hex(): row.hash for row in piece if len(row.vector) != usual}

    @property
    def _rules(self) -> BatchSettings:
        return self.settings.memory.remote.batch

    @property
    def _poll_s(self) -> float:
        return max(self._rules.poll_interval_ms / 1000, 0.05)

    @property
    def _row(self) -> Batch:
        row = batches.get(self.accounts.index, self.token)
        assert row is not None
        return row

    def _record(self, **columns: object) -> bool:
        """Write columns of the batch; always True."""
        batches.record(self.accounts.index, self.token, **columns)
        return True

    def _wait(self, seconds: float) -> bool:
        """Record when the next step is due; always False."""
        return not self._record(due=self.clock.now() + seconds)


def _end_of(batch: Batch) -> str:
    """Say how a batch ended whose cancellation was asked for."""
    return "expired" if batch.cancel_reason == _TOO_LONG else "cancelled"
