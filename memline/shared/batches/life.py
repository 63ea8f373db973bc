"""Carry a batch from its texts to their vectors: a row says how far it is, any process goes on from there.

    intent ──upload──► uploaded ──create──► submitted ──poll…──► collecting ──store──► closed

Every step is on record before the next one begins and may run twice. A create whose answer was lost leaves
`call_started_at`; then the provider is asked for the tag before a second one. An upload is sent again, which
costs nothing. One process at a time works on the batches of an index: a lock, which ends with the process.
"""

from __future__ import annotations

import fcntl
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from memline.shared.batches.wire import Job, OpenAI, key_and_row
from memline.shared.clock import Clock
from memline.shared.config.config_file import for_owner
from memline.shared.config.schema import Batch as BatchSettings
from memline.shared.embedders.protocol import Identity
from memline.shared.embedders.provider_errors import is_of_account
from memline.shared.embedders.vector_checks import unit_vector
from memline.shared.errors import ProviderBrokenAnswer, ProviderError, ProviderLater
from memline.shared.index import batches, vectors
from memline.shared.index.accounts import Accounts
from memline.shared.index.batches import FAILURES, LOST, PARTIAL, TIMED_OUT, Batch
from memline.shared.index.driver import transaction
from memline.shared.index.rows import LearnedCaps, VectorRow
from memline.shared.scheduling import embed_results, health, model_change
from memline.shared.scheduling.budget import BATCH, Budget, Charge, day_of

#: Times in a row a step fails before the batch is given up, if no job may exist; with the waits between them,
#: half a minute.
STEP_ATTEMPTS = 5

#: Seconds until a step that failed is tried again, doubled each further time, and at most; as between polls.
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 60.0

#: Seconds from the begin of a create whose answer is unknown until the provider's list is trusted.
LISTED_AFTER_S = 10.0

#: Seconds a provider may take to cancel a job, or to answer at its end, before the job is given up.
GIVE_UP_S = 900.0

#: Seconds after which a batch that no command waits for is cancelled: twice the longest window of a provider.
MAX_AGE_S = 48 * 3_600.0

#: Times a file is read again that has fewer rows than its provider made: the answer may have been cut off.
SHORT_TRIES = 2

#: Texts read, and vectors stored, at a time.
PAGE_ROWS, STORE_ROWS = 500, 200

#: HTTP statuses of a job that its provider does not know, and of results that will not come back.
_GONE = (404, 410)

_TOO_LONG = "remote.batch.timeoutMinutes is over"


@contextmanager
def alone(index: Path) -> Iterator[bool]:
    """Work on the batches of an index alone, for a block; False while another process or thread does."""
    with open(index.with_name(f"{index.name}.batches"), "ab", opener=for_owner) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


class Life(msgspec.Struct, kw_only=True):
    """The steps of the batches of one identity. Use it inside `alone`."""

    accounts: Accounts
    budget: Budget
    identity: Identity
    agent: str
    settings: BatchSettings
    clock: Clock
    #: Builds the client. Raises ProviderStop when these settings do not lead to the provider of the batch.
    connect: Callable[[], OpenAI]
    should_stop: Callable[[], bool] = lambda: False

    def advance(self, token: str) -> None:
        """Do every step of a batch whose time has come."""
        steps = {
            "intent": self._intent,
            "uploaded": self._uploaded,
            "submitted": self._submitted,
            "collecting": self._collecting,
        }
        goes_on = True
        try:
            wire = self.connect()
            with closing(wire.http):
                while goes_on and not self.should_stop() and (step := steps.get(self._row(token).state)):
                    goes_on = step(self._row(token), wire)
        except ProviderError as error:
            self._failed(self._row(token), error)
        except Exception as error:
            # The boundary of the process: whatever it was, the texts must not wait for it for ever.
            self._failed(self._row(token), ProviderBrokenAnswer(f"{type(error).__name__}: {error}"))
            raise

    # Steps. Each returns whether the next one may begin at once.

    def _intent(self, batch: Batch, wire: OpenAI) -> bool:
        if reason := self._cancel_reason(batch):
            return self._close(batch, "cancelled", reason)
        with tempfile.TemporaryFile() as file:
            try:
                count = self._write(file, batch.token, wire)
            except OSError as error:
                hint = "make room there, or set TMPDIR to another folder"
                text = f"the file of a batch cannot be written to {tempfile.gettempdir()}: {error.strerror}"
                raise ProviderLater(text, hint=hint) from None
            if not count:
                return self._close(batch, "cancelled", "its texts are gone")
            file_id = wire.upload(file, batch.token)
        self._record(batch, state="uploaded", file_id=file_id, attempts=0)
        return True

    def _uploaded(self, batch: Batch, wire: OpenAI) -> bool:
        job: Job | None = None
        if batch.call_started_at:
            if (wait_s := batch.call_started_at + LISTED_AFTER_S - self.clock.now()) > 0:
                return self._wait(batch, wait_s)
            job = wire.find(batch.token, batch.file_id)
        if job is None:
            if reason := self._cancel_reason(batch):
                return self._close(batch, "cancelled", reason, wire)
            self._record(batch, call_started_at=self.clock.now())
            try:
                job = wire.create(batch.file_id, batch.token, self.agent)
            except ProviderError as error:
                if not error.maybe_done:
                    self._record(batch, call_started_at=0.0)
                raise
        now = self.clock.now()
        timeout_s = self.settings.timeout_minutes * 60.0 if self.settings.wait else MAX_AGE_S
        self._record(
            batch,
            state="submitted",
            job_id=job.id,
            provider_state=job.provider_state,
            call_started_at=0.0,
            submitted_at=now,
            deadline=now + timeout_s,
            attempts=0,
            error="",
            action="",
        )
        return job.state != "running" or self._wait(batch, self._poll_s)

    def _submitted(self, batch: Batch, wire: OpenAI) -> bool:
        now = self.clock.now()
        if now >= batch.deadline and not batch.cancel_requested_at:
            self._record(batch, cancel_requested_at=now, cancel_reason=_TOO_LONG)
            return True
        if batch.cancel_requested_at and not batch.cancelled_at:
            wire.cancel(batch.job_id)
            self._record(batch, cancelled_at=now, deadline=now + GIVE_UP_S)
            return self._wait(batch, self._poll_s)
        job = wire.job(batch.job_id)
        self._record(
            batch,
            polled_at=now,
            provider_state=job.provider_state,
            rows_done=job.done,
            attempts=0,
            error=job.reason,
            action="",
        )
        if job.state != "running":
            self._record(batch, state="collecting")
            return True
        if batch.cancelled_at and now >= batch.deadline:
            return self._give_up(batch, f"job {job.id} was not cancelled in time", wire)
        # The longer it has taken, the rarer the polls.
        wait_s = max(self._poll_s, min((now - batch.submitted_at) / 4, LONGEST_WAIT_S))
        return self._wait(batch, min(wait_s, max(batch.deadline - now, self._poll_s)))

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
                    left |= self._store(batch, piece)
                    piece = []
        left |= self._store(batch, piece)
        if good < job.done and batch.attempts < SHORT_TRIES:
            raise ProviderBrokenAnswer(f"of the {job.done} rows of job {job.id} {good} came")
        model_change.switch_when_complete(self.accounts.index)
        outcome: str = job.state
        if outcome == "done":
            outcome = "failed" if not self._row(batch.token).stored else PARTIAL if left else "done"
        elif outcome == "cancelled" and batch.cancel_reason == _TOO_LONG:
            return self._give_up(batch, f"job {job.id} took too long", wire, job.outputs)
        elif outcome == "cancelled":
            first_error = batch.cancel_reason or "cancelled at the provider"
        error = "" if outcome == "done" else job.reason or first_error or f"job {job.id} is {job.state}"
        return self._close(batch, outcome, error, wire, outputs=job.outputs)

    # The end of a batch.

    def _give_up(
        self, batch: Batch, error: str, wire: OpenAI | None = None, outputs: tuple[str, ...] = ()
    ) -> bool:
        if batch.cancel_reason != _TOO_LONG and batch.cancel_requested_at:
            return self._close(batch, "cancelled", batch.cancel_reason, wire, outputs=outputs)
        hint = "set remote.batch.timeoutMinutes higher, or remote.batch.wait to false"
        return self._close(batch, TIMED_OUT, error, wire, outputs=outputs, action=hint)

    def _close(
        self,
        batch: Batch,
        outcome: str,
        error: str,
        wire: OpenAI | None = None,
        *,
        outputs: tuple[str, ...] = (),
        action: str = "",
        cause: ProviderError | None = None,
    ) -> bool:
        """End a batch: what it did not bring goes in requests, and its money is set right. Always False."""
        now, index = self.clock.now(), self.accounts.index
        with transaction(index):
            row = self._row(batch.token)
            # Nothing is wrong with texts that were in no job, or whose job a person ended.
            is_tried = bool(row.job_id) and outcome != "cancelled"
            index.execute(
                "UPDATE vectors SET state = 'wanted', lease = NULL, due = 0, attempts = attempts + ?"
                " WHERE lease = ?",
                (is_tried, batch.token),
            )
            vectors.drop_unneeded(index)
            batches.record(
                index, batch.token, state="closed", outcome=outcome, error=error, action=action, closed_at=now
            )
            self._tell_breaker(outcome, error, action, cause, now)
        # What was made, as far as it is known, is paid for.
        is_unknown = outcome in (LOST, TIMED_OUT) or bool(row.call_started_at)
        paid_rows = row.rows if is_unknown else max(row.stored, row.rows_done)
        paid = row.tokens * min(paid_rows, row.rows) // max(row.rows, 1)
        account = self.accounts.of(self.identity.provider)
        charge = Charge(identity=self.identity, account=account, mode=BATCH)
        self.budget.correct(charge, day_of(row.created_at), paid - row.tokens, 0 if paid else -1)
        if wire is not None:
            for file in filter(None, (row.file_id, *outputs)):
                wire.delete(file)
        return False

    def _tell_breaker(
        self, outcome: str, error: str, action: str, cause: ProviderError | None, now: float
    ) -> None:
        mode, change = health.BATCH, partial(health.unsent, seconds=0.0, error="", now=now, is_probe=True)
        # Without a status the provider was not asked: this process's settings do not lead to it.
        is_stop = cause is not None and cause.kind == "stop" and cause.status is not None
        if outcome in ("done", PARTIAL):
            change = partial(health.worked)
        elif cause is not None and is_stop and is_of_account(cause):
            mode, rules = health.REQUESTS, health.REQUEST_RULES
            change = partial(health.stopped, rules=rules, error=error, action=action, now=now)
        elif outcome in FAILURES:
            follow = health.stopped if is_stop else health.failed
            rules = health.batch_rules(self.settings)
            change = partial(follow, rules=rules, error=error, action=action, now=now, is_probe=True)
        health.update(self.accounts, self.identity.provider, mode, change)

    def _failed(self, batch: Batch, error: ProviderError) -> None:
        """Try a step again, the later the oftener it failed; give the batch up when that is hopeless."""
        now, attempts = self.clock.now(), batch.attempts + 1
        is_gone = error.status in _GONE and batch.state in ("submitted", "collecting")
        if not batch.job_id and not batch.call_started_at:
            # There is no job, so another way costs nothing.
            is_told = error.retry_after_s is not None and error.retry_after_s >= 1
            is_hopeless = error.kind not in ("later", "broken") or (attempts >= STEP_ATTEMPTS and not is_told)
            if is_hopeless or now >= batch.created_at + self.settings.timeout_minutes * 60.0:
                self._close(batch, "failed", error.message, action=error.hint, cause=error)
                return
        elif now >= (batch.deadline or batch.created_at + MAX_AGE_S) + GIVE_UP_S:
            self._give_up(batch, error.message) if not is_gone else self._close(batch, LOST, error.message)
            return
        elif attempts >= STEP_ATTEMPTS and (
            batch.cancel_requested_at or (is_gone and batch.state == "collecting")
        ):
            self._close(batch, "cancelled" if batch.cancel_requested_at else LOST, error.message)
            return
        action = error.hint if error.kind == "stop" and not is_gone else ""
        if is_gone and attempts >= STEP_ATTEMPTS:
            # A server lags, a proxy answers, or the key is of another project: the job may still cost money.
            action = f"set back the key that made the job, or run: memline jobs cancel {batch.token[:8]}"
        wait_s = max(min(FIRST_WAIT_S**attempts, LONGEST_WAIT_S), error.retry_after_s or 0.0)
        self._record(batch, attempts=attempts, error=error.message, action=action, due=now + wait_s)

    # Parts.

    def _write(self, file: IO[bytes], token: str, wire: OpenAI) -> int:
        """Write a line for each text that a chunk still needs; return how many."""
        last = count = 0
        query = (
            "SELECT id, lower(hex(text_hash)),"
            " (SELECT text FROM chunks WHERE chunks.text_hash = vectors.text_hash LIMIT 1)"
            " FROM vectors WHERE lease = ? AND id > ? ORDER BY id LIMIT ?"
        )
        # In pages: a read that lasts minutes would keep the write-ahead log from being taken in.
        while page := self.accounts.index.execute(query, (token, last, PAGE_ROWS)).fetchall():
            last = page[-1][0]
            for _, key, text in page:
                if text is not None:
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
                    vector = unit_vector(wire.vector(row), dims=None) if key else b""
                except ProviderError as error:
                    yield key, b"", error.message
                else:
                    yield key, vector, ""

    def _store(self, batch: Batch, piece: list[VectorRow]) -> dict[str, bytes]:
        """Store vectors; return those of other dimensions than most, which come again in a request."""
        sizes = Counter(len(row.vector) for row in piece)
        usual = sizes.most_common(1)[0][0] if piece else 0
        good = [row for row in piece if len(row.vector) == usual]
        if good:
            now = self.clock.now()
            embed_results.store_vectors(self.accounts, self.identity, batch.token, good, LearnedCaps(), now)
        return {row.hash.hex(): row.hash for row in piece if len(row.vector) != usual}

    @property
    def _poll_s(self) -> float:
        return max(self.settings.poll_interval_ms / 1000, 0.05)

    def _cancel_reason(self, batch: Batch) -> str:
        """Say why a batch that its provider does not have is not sent; empty when it is."""
        if not self.settings.enabled and not batch.cancel_requested_at:
            return "remote.batch.enabled is off now"
        return batch.cancel_reason

    def _row(self, token: str) -> Batch:
        row = batches.get(self.accounts.index, token)
        assert row is not None
        return row

    def _record(self, batch: Batch, **columns: Any) -> None:
        batches.record(self.accounts.index, batch.token, **columns)

    def _wait(self, batch: Batch, seconds: float) -> bool:
        """Record when the next step is due; always False."""
        self._record(batch, due=self.clock.now() + seconds)
        return False
