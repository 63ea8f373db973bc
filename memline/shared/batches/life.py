"""Carry a batch from its texts to their vectors: a row says how far it is, any process goes on from there.

    intent ──upload, create──► submitted ──poll…──► collecting ──store──► closed

Every step is on record before the next one begins and may run twice. A create whose answer was lost leaves
`call_started_at`; then the provider is asked for the tag before a second one. An upload is sent again, which
costs nothing. The caller holds the batches of the index, so that one process at a time works on them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import IO

import msgspec

from memline.shared.batches.wire import KINDS, Job, OpenAI
from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose_for_identity
from memline.shared.embedders.provider_errors import is_of_account
from memline.shared.errors import ProviderBrokenAnswer, ProviderError
from memline.shared.index import batches, identities
from memline.shared.index.accounts import Accounts
from memline.shared.index.batches import LOST, PARTIAL, Batch
from memline.shared.index.driver import transaction
from memline.shared.index.identities import IdentityRow
from memline.shared.index.rows import VectorRow
from memline.shared.scheduling import health
from memline.shared.scheduling.budget import BATCH, Budget, Charge, day_of
from memline.shared.scheduling.health import Failure
from memline.shared.scheduling.leases import Answer

#: Times in a row that a step fails until the batch is given up where no job may exist, and until the operator
#: is told where one does; and times that a short file of results is read again: it may have been cut off.
STEP_ATTEMPTS, SHORT_TRIES = 5, 3

#: Seconds until a step that failed is tried again, doubled each further time, and at most; as between polls.
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 60.0

#: Seconds until the list of jobs is trusted after a create whose answer is unknown; until a job is given up
#: that is not cancelled in time, or whose provider does not answer at its end; and until a batch is cancelled
#: that no command waits for: twice the longest window of a provider.
LISTED_AFTER_S, GIVE_UP_S, MAX_AGE_S = 10.0, 900.0, 48 * 3_600.0

#: Vectors stored at a time.
STORE_ROWS = 200

_TOO_LONG = "it took longer than remote.batch.timeoutMinutes"


class Life(msgspec.Struct):
    """The steps of the batch `token`."""

    accounts: Accounts
    budget: Budget
    #: `IndexWriter.store_vectors`.
    store: Callable[[Answer], str]
    settings: AgentSettings
    clock: Clock
    token: str

    def advance(self) -> None:
        """Do the step whose time has come."""
        batch = self.row
        try:
            choice = choose_for_identity(self.settings, self._model.identity, self._model.base_url)
            with closing(KINDS[choice.provider](choice, self.clock)) as wire:
                if batch.job_id:
                    self._poll(batch, wire)
                else:
                    self._submit(batch, wire)
                after = self.row
                if after.file_id and not after.is_open:
                    wire.delete(after.file_id)
        except ProviderError as error:
            self._failed(self.row, error)
        except Exception as error:
            # The boundary of the process: whatever it was, the texts must not wait for it for ever.
            self._failed(self.row, ProviderBrokenAnswer(f"{type(error).__name__}: {error}"))
            raise

    def _submit(self, batch: Batch, wire: OpenAI) -> None:
        """Send the file of texts, and make the job or find the one that was made."""
        job = wire.find(batch.token) if batch.call_started_at else None
        is_needed = batches.texts_left(self.accounts.index, self.token, needed=True) > 0
        if job is None and (batch.cancel_reason or not is_needed):
            self._close("cancelled", batch.cancel_reason or "its texts are gone")
            return
        if not batch.file_id:
            with tempfile.TemporaryFile() as file:
                self._write(file, wire)
                self._record(file_id=wire.upload(file, batch.token), attempts=0)
        if job is None:
            now = self.clock.now()
            self._record(call_started_at=now, due=now + LISTED_AFTER_S)
            try:
                job = wire.create(self.row.file_id, batch.token, self.settings.agent)
            except ProviderError as error:
                if 300 <= (error.status or 0) < 500 and error.status not in (408, 409):
                    # It was refused, so there is no job.
                    self._record(call_started_at=0.0)
                raise
        now, rules = self.clock.now(), self.settings.memory.remote.batch
        ends = now + (rules.timeout_minutes * 60.0 if rules.wait else MAX_AGE_S)
        made = {"job_id": job.id, "submitted_at": now, "polled_at": now, "deadline": ends}
        self._record(state="submitted", call_started_at=0.0, **made)
        self._wait(now)

    def _poll(self, batch: Batch, wire: OpenAI) -> None:
        """Ask how far the job is, and store what it made when it has ended; or ask for its end."""
        job, now = wire.job(batch.job_id), self.clock.now()
        state = batch.state if job.state == "running" else "collecting"
        self._record(state=state, polled_at=now, provider_state=job.provider_state, rows_done=job.done)
        reason = batch.cancel_reason or (_TOO_LONG if now >= batch.deadline else "")
        if job.state != "running":
            self._collect(batch, job, wire)
        elif reason and not batch.cancelled_at:
            wire.cancel(job.id)
            self._record(cancel_reason=reason, cancelled_at=now, deadline=now + GIVE_UP_S)
            self._wait(now)
        elif batch.cancelled_at and now >= batch.deadline:
            self._close(_end_of(batch), f"job {job.id} was not cancelled in time")
        else:
            self._wait(now)

    def _wait(self, now: float) -> None:
        """Ask the provider again after a while: the longer the job has taken, the longer."""
        row, least_s = self.row, max(self.settings.memory.remote.batch.poll_interval_ms / 1000, 0.05)
        wait_s = max(least_s, min((now - row.submitted_at) / 4, LONGEST_WAIT_S, row.deadline - now))
        self._record(due=now + wait_s, attempts=0, error="", action="")

    def _collect(self, batch: Batch, job: Job, wire: OpenAI) -> None:
        """Store what a job made. What an earlier run stored is skipped, and so are rows of other jobs."""
        query = "SELECT lower(hex(text_hash)), text_hash FROM vectors WHERE lease = ?"
        left: dict[str, bytes] = dict(self.accounts.index.execute(query, (batch.token,)))
        good, why, results = 0, "", chain.from_iterable(map(wire.results, job.outputs))
        while piece := list(islice(results, STORE_ROWS)):
            good += sum(bool(vector) for _, vector, _ in piece)
            why = why or next((error for *_, error in piece if error), "")
            vectors = {left[key]: vector for key, vector, _ in piece if vector and key in left}
            rows = tuple(VectorRow(hash=digest, vector=vector) for digest, vector in vectors.items())
            why = self.store(Answer(identity=self._model.identity, lease=self.token, vectors=rows)) or why
        if good < job.done and batch.attempts < SHORT_TRIES:
            raise ProviderBrokenAnswer(f"of the {job.done} rows of job {job.id} {good} came")
        outcome, stored = job.state, self.row.stored
        if outcome == "done":
            is_useless = not good or (left and not stored)
            outcome = "failed" if is_useless else PARTIAL if stored < batch.rows else "done"
        elif outcome == "cancelled":
            outcome = _end_of(batch)
        error = batch.cancel_reason or job.reason or why or f"job {job.id} is {job.state}"
        self._close(outcome, error if outcome != "done" else "")
        for file_id in job.outputs:
            wire.delete(file_id)

    def _close(self, outcome: str, error: str, cause: ProviderError | None = None) -> None:
        """End a batch: what it did not bring goes in requests, and its money is set right."""
        now, index, row = self.clock.now(), self.accounts.index, self.row
        with transaction(index):
            # Nothing is wrong with texts that were in no job, or whose job a person ended.
            is_tried = bool(row.job_id) and outcome != "cancelled"
            index.execute(
                "UPDATE vectors SET state = 'wanted', lease = NULL, due = 0, attempts = attempts + ?"
                " WHERE lease = ?",
                (is_tried, self.token),
            )
            self._record(state="closed", outcome=outcome, error=error, action="", closed_at=now)
            self._tell_breaker(outcome, error, cause, now)
        # What was made, as far as it is known, is paid for.
        is_unknown = bool(row.call_started_at) or row.state == "submitted"
        rows = row.rows if is_unknown else min(max(row.stored, row.rows_done), row.rows)
        paid = row.tokens * rows // max(row.rows, 1)
        identity = self._model.identity
        charge = Charge(identity=identity, account=self.accounts.of(identity.provider), mode=BATCH)
        self.budget.correct(charge, day_of(row.created_at), paid - row.tokens, 0 if paid else -1)

    def _tell_breaker(self, outcome: str, error: str, cause: ProviderError | None, now: float) -> None:
        """Count how a batch ended. A key that is refused stops requests as well."""
        provider, mode = self._model.identity.provider, health.BATCH
        rules = health.batch_rules(self.settings.memory.remote.batch)
        if outcome in ("done", PARTIAL):
            return health.update(self.accounts, provider, mode, health.worked)
        kind, action = "unsent" if outcome == "cancelled" else "later", cause.hint if cause else ""
        # Without a status the provider was not asked: this process's settings do not lead to it.
        if cause is not None and cause.kind == "stop" and cause.status is not None:
            kind = "stop"
            if is_of_account(cause):
                mode, rules = health.REQUESTS, health.REQUEST_RULES
        failure = Failure(kind=kind, error=error, action=action, is_probe=mode == health.BATCH)
        change = partial(health.after_failure, failure=failure, now=now, rules=rules)
        return health.update(self.accounts, provider, mode, change)

    def _failed(self, batch: Batch, error: ProviderError) -> None:
        """Try a step again, the later the oftener it failed; give the batch up when that is hopeless."""
        now, attempts, action = self.clock.now(), batch.attempts + 1, ""
        outcome = _end_of(batch) if batch.cancel_reason else LOST
        is_worn_out = attempts >= STEP_ATTEMPTS
        is_over = now >= (batch.deadline or batch.created_at + MAX_AGE_S) + GIVE_UP_S
        if not batch.job_id and not batch.call_started_at:
            # There is no job, so another way costs nothing; but a file that is new may not be known yet.
            outcome, is_over = "failed", is_worn_out or (error.kind == "stop" and not batch.file_id)
        if is_over or (is_worn_out and batch.cancel_reason):
            self._close(outcome, error.message, None if batch.job_id else error)
            return
        if is_worn_out and error.kind == "stop":
            # The key may be of another project, and the job may still cost money.
            cancel = f"memline jobs cancel {self.token[:8]}"
            action = f"set back the key and address that made it, or run: {cancel}"
        least_s = max(error.retry_after_s or 0.0, LISTED_AFTER_S if batch.call_started_at else 0.0)
        wait_s = max(min(FIRST_WAIT_S**attempts, LONGEST_WAIT_S), least_s)
        self._record(attempts=attempts, error=error.message, action=action, due=now + wait_s)

    def _write(self, file: IO[bytes], wire: OpenAI) -> None:
        """Write a line for each text that a chunk still needs."""
        query = (
            "SELECT lower(hex(text_hash)), text FROM vectors JOIN chunks USING (text_hash)"
            " WHERE lease = ? GROUP BY vectors.id ORDER BY vectors.id"
        )
        for key, text in self.accounts.index.execute(query, (self.token,)):
            file.write(msgspec.json.encode(wire.row(key, text)) + b"\n")
        file.seek(0)

    @property
    def _model(self) -> IdentityRow:
        model = identities.by_id(self.accounts.index, self.row.identity_id)
        assert model is not None
        return model

    @property
    def row(self) -> Batch:
        """The batch as it is now."""
        row = batches.get(self.accounts.index, self.token)
        assert row is not None
        return row

    def _record(self, **columns: object) -> None:
        """Write columns of the batch."""
        batches.record(self.accounts.index, self.token, **columns)


def _end_of(batch: Batch) -> str:
    """Say how a batch ended whose cancellation was asked for."""
    return "expired" if batch.cancel_reason == _TOO_LONG else "cancelled"
