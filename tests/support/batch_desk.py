"""One index, a provider in memory and a clock moved by hand: a batch step by step, without a broker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from shared.clock import ManualClock
from shared.config.schema import Batch as Settings
from shared.embedders.batch import BatchCaps, BatchLook, BatchResult, BatchRow, State
from shared.embedders.protocol import Identity
from shared.errors import ProviderError
from shared.index import batches, identity
from shared.index.batch_claims import claimed
from shared.index.batch_clean import clean
from shared.index.batch_collect import collect
from shared.index.batch_dispatch import BatchRules, Gathered
from shared.index.batch_poll import poll
from shared.index.batch_submit import Timing, submit
from shared.index.batches import Batch
from shared.index.rows import LearnedCaps, VectorRow
from shared.index.writer import IndexWriter
from tests.support.index_rows import MODEL_A, vector_of

RULES = BatchRules(concurrency=2, min_texts=3, max_rows=100, max_bytes=10**9)
CAPS = BatchCaps(max_rows=RULES.max_rows, max_bytes=RULES.max_bytes)


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
    caps: BatchCaps = CAPS
    files: dict[str, tuple[str, list[BatchRow]]] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    errors: dict[str, list[ProviderError]] = field(default_factory=lambda: defaultdict(list))
    lost: dict[str, list[ProviderError]] = field(default_factory=lambda: defaultdict(list))
    #: Whether a job that is cancelled runs on.
    ends_slowly: bool = False
    #: Called in the middle of a call.
    during: dict[str, Callable[[], object]] = field(default_factory=dict)

    def row_bytes(self, row: BatchRow) -> int:
        return len(row.text)

    def upload(self, rows: Iterable[BatchRow], *, tag: str) -> str:
        self._begin("upload")
        file_id = f"file-{len(self.files) + 1}"
        self.files[file_id] = (tag, list(rows))
        self._begin("uploading")
        self._end("upload")
        return file_id

    def find_upload(self, tag: str) -> str | None:
        self._begin("find_upload")
        return next((name for name, (of, _) in self.files.items() if of == tag), None)

    def create(self, file_id: str, *, tag: str, agent: str) -> BatchLook:
        self._begin("create")
        job = Job(f"job-{len(self.jobs) + 1}", tag, self.files[file_id][1])
        self.jobs[job.id] = job
        self._end("create")
        return self._look(job)

    def find(self, tag: str) -> BatchLook | None:
        self._begin("find")
        return next((self._look(job) for job in self.jobs.values() if job.tag == tag), None)

    def look(self, batch_id: str) -> BatchLook:
        self._begin("look")
        return self._look(self.jobs[batch_id])

    def results(self, look: BatchLook) -> Iterator[BatchResult]:
        self._begin("results")
        job = self.jobs[look.id]
        yield from self.answers(job) if job.results is None else job.results
        self._end("results")

    def cancel(self, batch_id: str) -> BatchLook:
        self._begin("cancel")
        job = self.jobs[batch_id]
        if job.state == "running" and not self.ends_slowly:
            job.state, job.results = "cancelled", job.results or []
        return self._look(job)

    def clean_up(self, look: BatchLook | None, *, file_id: str) -> None:
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

    def _look(self, job: Job) -> BatchLook:
        output = "output" if job.state != "running" else ""
        return BatchLook(
            id=job.id,
            state=job.state,
            said=f"is {job.state}",
            reason=job.reason,
            error=job.error,
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


@dataclass(slots=True)
class Sink:
    """The store worker, called at once; `drop` loses what comes, as a flushed Redis does."""

    writer: IndexWriter
    token: str
    drop: bool = False

    def vectors(self, rows: tuple[VectorRow, ...]) -> None:
        if not self.drop:
            self.writer.store_vectors(MODEL_A, self.token, rows, LearnedCaps())

    def failures(self, hashes: tuple[bytes, ...], *, kind: str, error: str, action: str) -> None:
        if not self.drop:
            self.writer.embed_failed(
                MODEL_A,
                self.token,
                hashes,
                kind=kind,
                error=error,
                action=action,
                retry_after_s=None,
                learned=LearnedCaps(),
            )


class Desk:
    """The dispatcher and the batch worker of one index."""

    def __init__(self, writer: IndexWriter, clock: ManualClock) -> None:
        self.writer = writer
        self.clock = clock
        self.api = FakeProvider()
        self.rules = RULES
        self.settings = Settings(concurrency=RULES.concurrency)
        self.min_texts = 1
        self.timing = Timing(poll_s=10.0, timeout_s=3_600.0)
        writer.retarget(MODEL_A)

    def gather(self, *, is_feeding: bool = False, **rules: int) -> Gathered:
        """One look of the dispatcher."""
        return self.writer.batches.gather(replace(self.rules, **rules), only=MODEL_A, is_feeding=is_feeding)

    def make(self) -> Batch:
        """The only open batch, out of what is wanted."""
        self.gather()
        self.clock.advance(1.1)
        self.gather()
        (batch,) = self.open()
        return batch

    def open(self) -> list[Batch]:
        return batches.open_batches(self.writer.connection)

    def batch(self, token: str) -> Batch:
        found = batches.get(self.writer.connection, token)
        assert found is not None
        return found

    def step(self, token: str, *, drop: bool = False) -> Batch:
        """What the batch worker and the store worker do about one message; the batch afterwards."""
        connection = self.writer.connection
        states = ("intent", "uploaded", "submitted", "collecting", "cleaning")
        missing: int | None = None
        with claimed(connection, token, states, self.clock) as claim:
            if claim is None:
                return self.batch(token)
            if claim.batch.state in ("intent", "uploaded"):
                is_over = submit(
                    claim,
                    self.api,
                    connection,
                    agent="main",
                    timing=self.timing,
                    clock=self.clock,
                    should_stop=lambda: False,
                )
                missing = batches.texts_left(connection, token) if is_over else None
            elif claim.batch.state == "cleaning":
                clean(claim, self.api, clock=self.clock)
            else:
                look = None
                if claim.batch.state == "submitted":
                    look = poll(claim, self.api, timing=self.timing, clock=self.clock)
                if claim.batch.state == "collecting":
                    sink = Sink(self.writer, token, drop)
                    missing = collect(claim, self.api, connection, sink, look=look, clock=self.clock)
        if missing is not None:
            self.writer.batches.settle(token, missing=missing, min_texts=self.min_texts)
        return self.batch(token)

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
        target = identity.target(self.writer.connection)
        assert target is not None
        rows = self.writer.connection.execute(
            "SELECT state, count(*) FROM vectors WHERE identity_id = ? AND live = 1 GROUP BY state",
            (target.id,),
        )
        return dict(rows.fetchall())
