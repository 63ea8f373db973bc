"""One index, a provider in memory and a clock moved by hand: a batch step by step, without a broker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import cast

from memline.shared.batches.batch_lifecycle import Lifecycle
from memline.shared.batches.job_rows import BatchResult, BatchRow
from memline.shared.batches.open_batches import Claim, claimed
from memline.shared.batches.planning import BatchPlan, BatchRules
from memline.shared.batches.remote import BatchApi, BatchJob, State
from memline.shared.clock import ManualClock
from memline.shared.config.schema import Batch as Settings
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import ProviderError
from memline.shared.index import batches, identities
from memline.shared.index.batches import Batch
from memline.shared.index.driver import transaction
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import breaker, health
from tests.support.index_rows import MODEL_A, batch_failed, vector_of

RULES = BatchRules(concurrency=2, min_texts=3, max_rows=100, max_bytes=10**9)
#: Texts of the fixture `desk`.
TEXTS = 20


@dataclass(slots=True)
class Job:
    """A job at the provider."""

    id: str
    tag: str
    rows: list[BatchRow]
    state: State = "running"
    reason: str = ""
    error: ProviderError | None = None
    #: What its output holds once it is final; None: a vector for every row.
    results: list[BatchResult] | None = None


@dataclass(slots=True)
class FakeProvider:
    """A `BatchApi` that keeps everything in memory and fails as it is told.

    `errors[call]` are raised one a call before it has an effect, `lost[call]` after it had one.
    """

    identity: Identity = MODEL_A
    files: dict[str, tuple[str, list[BatchRow]]] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    errors: dict[str, list[ProviderError]] = field(default_factory=lambda: defaultdict(list))
    lost: dict[str, list[ProviderError]] = field(default_factory=lambda: defaultdict(list))
    #: Whether an uploaded file has been looked through.
    #: Whether a job that is cancelled runs on.
    ends_slowly: bool = False
    #: Rows that a job says are done.
    describes_rows: int = 0
    describes_failed: int = 0
    #: Called in the middle of a call.
    during: dict[str, Callable[[], object]] = field(default_factory=dict)

    def upload(self, rows: Iterable[BatchRow], *, tag: str) -> str:
        self._begin("upload")
        file_id = f"file-{len(self.files) + 1}"
        self.files[file_id] = (tag, list(rows))
        self._begin("uploading")
        self._end("upload")
        return file_id

    def create(self, file_id: str, *, tag: str, agent: str) -> BatchJob:
        self._begin("create")
        job = Job(f"job-{len(self.jobs) + 1}", tag, self.files[file_id][1])
        self.jobs[job.id] = job
        self._end("create")
        return self._describe(job)

    def find(self, tag: str, *, file_id: str) -> BatchJob | None:
        self._begin("find")
        return next((self._describe(job) for job in self.jobs.values() if job.tag == tag), None)

    def get_job(self, job_id: str) -> BatchJob:
        self._begin("get_job")
        return self._describe(self.jobs[job_id])

    def results(self, job: BatchJob) -> Iterator[BatchResult]:
        self._begin("results")
        made = self.jobs[job.id]
        yield from self.answers(made) if made.results is None else made.results
        self._end("results")

    def cancel(self, job_id: str) -> BatchJob:
        self._begin("cancel")
        job = self.jobs[job_id]
        if job.state == "running" and not self.ends_slowly:
            job.state, job.results = "cancelled", job.results or []
        return self._describe(job)

    def clean_up(self, job: BatchJob | None, *, file_id: str) -> None:
        self._begin("clean_up")
        self.files.pop(file_id, None)

    def close(self) -> None:
        """Nothing is open."""

    def finish(
        self,
        state: State = "done",
        results: list[BatchResult] | None = None,
        reason: str = "",
        error: ProviderError | None = None,
    ) -> None:
        """All running jobs end so."""
        for job in self.jobs.values():
            if job.state == "running":
                job.state, job.results, job.reason, job.error = state, results, reason, error

    @staticmethod
    def answers(job: Job) -> list[BatchResult]:
        return [BatchResult(key=row.key, vector=vector_of(row.text)) for row in job.rows]

    @property
    def job(self) -> Job:
        """The only job."""
        (job,) = self.jobs.values()
        return job

    def _describe(self, job: Job) -> BatchJob:
        output = "output" if job.state != "running" else ""
        return BatchJob(
            id=job.id,
            state=job.state,
            provider_state=f"is {job.state}",
            reason=job.reason,
            error=job.error,
            rows_done=self.describes_rows,
            rows_failed=self.describes_failed,
            output=output,
            tag=job.tag,
        )

    def _begin(self, call: str) -> None:
        self.calls[call] += 1
        if call in self.during:
            self.during.pop(call)()
        if self.errors[call]:
            raise self.errors[call].pop(0)

    def _end(self, call: str) -> None:
        if self.lost[call]:
            raise self.lost[call].pop(0)


class Desk:
    """The dispatcher and the batch worker of one index."""

    def __init__(self, writer: IndexWriter, clock: ManualClock) -> None:
        self.writer = writer
        self.clock = clock
        self.api = FakeProvider()
        self.rules = RULES
        self.settings = Settings(
            enabled=True, concurrency=RULES.concurrency, min_texts=1, poll_interval_ms=10_000
        )
        #: Why the settings do not lead to the provider, if they do not.
        self.unreachable: ProviderError | None = None
        writer.retarget(MODEL_A)

    @property
    def timeout_s(self) -> float:
        return self.settings.timeout_minutes * 60.0

    @property
    def batch_health(self) -> breaker.Health:
        return health.read(self.writer.accounts, "openai", health.BATCH)

    def request_cancel(self, token: str) -> bool:
        """The operator cancels a batch."""
        return batches.request_cancel(
            self.writer.connection, token, reason="by the operator", now=self.clock.now()
        )

    def open_breaker(self) -> None:
        """Two batches failed."""
        with transaction(self.writer.connection):
            for _ in range(2):
                batch_failed(self.writer.accounts, "it broke", self.clock.now())

    def plan(self, *, has_pending_files: bool = False, **rules: int) -> BatchPlan:
        """Plan once, as the dispatcher does."""
        changed = replace(self.rules, **rules)
        return self.writer.plan_batches(changed, only=MODEL_A, has_pending_files=has_pending_files)

    def make(self) -> Batch:
        """The only open batch, out of what is wanted."""
        self.plan()
        self.clock.advance(1.1)
        self.plan()
        (batch,) = self.open()
        return batch

    def open(self) -> list[Batch]:
        return batches.open_batches(self.writer.connection)

    def batch(self, token: str) -> Batch:
        found = batches.get(self.writer.connection, token)
        assert found is not None
        return found

    def step(self, token: str) -> Batch:
        """What the batch worker does about one message; the batch afterwards."""
        with claimed(self.writer.connection, token, self.clock) as claim:
            if claim is not None:
                self.lifecycle(claim).advance()
        return self.batch(token)

    def lifecycle(self, claim: Claim) -> Lifecycle:
        return Lifecycle(
            claim=claim,
            accounts=self.writer.accounts,
            budget=self.writer.budget,
            api=self._reach,
            identity=MODEL_A,
            agent="main",
            settings=self.settings,
        )

    def _reach(self) -> BatchApi:
        if self.unreachable is not None:
            raise self.unreachable
        return cast(BatchApi, self.api)

    def run(self, token: str, steps: int = 12) -> Batch:
        """Step by step, each at its time, until it is closed or the provider still works on it."""
        for _ in range(steps):
            batch = self.batch(token)
            if batch.state == "closed":
                break
            self.clock.advance(max(0.0, batch.due - self.clock.now()))
            self.step(token)
        return self.batch(token)

    def states(self) -> dict[str, int]:
        """Vectors of the target by state."""
        target = identities.target(self.writer.connection)
        assert target is not None
        rows = self.writer.connection.execute(
            "SELECT state, count(*) FROM vectors WHERE identity_id = ? AND active = 1 GROUP BY state",
            (target.id,),
        )
        return dict(rows.fetchall())
