"""Write an agent's index, each change a short transaction.

Any process may write: the ledger's `observed_ns`, text hashes and leases decide between them, not who came
first.

`IndexWriter` has a method where several modules work together. For a single function of `shared.index` or
`shared.scheduling` open a session: `with writer.session() as (connection, now): …`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection

from memline.shared.batches import plan as batch_plan
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import ACCOUNT_FILE, AgentSettings
from memline.shared.config.schema import Batch as BatchSettings
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import IndexFault
from memline.shared.index import (
    batches,
    bits,
    chunks,
    identities,
    ledger,
    meta,
    token_rows,
    vectors,
)
from memline.shared.index.accounts import AccountFile, Accounts
from memline.shared.index.driver import (
    BUSY_TIMEOUT_MS,
    connect_read_only,
    faults,
    file_id,
    open_writer,
    shorten_log,
    transaction,
)
from memline.shared.index.rows import FileRow, VectorRow
from memline.shared.providers import RequestCaps
from memline.shared.scheduling import health, jobs, leases, minutes, model_change
from memline.shared.scheduling.budget import Budget
from memline.shared.scheduling.health import Health
from memline.shared.scheduling.leases import Answer
from memline.shared.sources.tokens import estimate_tokens
from memline.shared.sync.plan import refuse_other_workspace

#: Seconds after which the message about due batches is sent again.
RESEND_S = 30.0

#: A page of the vectors of an identity, behind a row and of so many bytes.
_VECTORS_OF = (
    "SELECT id, text_hash, embedding, coalesce(token_vectors.tokens, x'') FROM vectors"
    " LEFT JOIN token_vectors ON vector_id = id WHERE vectors.identity_id = ? AND id > ?"
    " AND state = 'ready' AND length(embedding) = ? ORDER BY id LIMIT ?"
)


class IndexWriter:
    """Writes one agent's index. Not for use by two threads at once."""

    def __init__(
        self,
        path: Path,
        *,
        account_file: Path | None = None,
        cache_entries: int = 50_000,
        clock: Clock | None = None,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        lease_s: float = leases.LEASE_S,
    ) -> None:
        """Open or make the file; see `driver.open_writer` for what it raises.

        `account_file`: None for one beside the index.
        """
        self.path = path
        self.connection: Connection = open_writer(path, busy_timeout_ms=busy_timeout_ms)
        self._file_id = file_id(path)
        file = AccountFile(account_file or path.with_name(ACCOUNT_FILE))
        #: The provider accounts of this index; `shared.scheduling.health` reads and writes them.
        self.accounts = Accounts(index=self.connection, file=file)
        #: What this agent may spend; without its settings there is no ceiling.
        self.budget = Budget(file)
        self._clock = clock or SystemClock()
        self._cache_entries = cache_entries
        #: When this process called the worker of batches for each step that is due (monotonic seconds).
        self._batch_sent_at: dict[tuple[str, float], float] = {}
        #: The minute of the epoch that was noted last, in the process that dispatches.
        self._noted_minute = 0
        self._lease_s = lease_s

    @classmethod
    def of(
        cls, settings: AgentSettings, *, clock: Clock | None = None, busy_timeout_ms: int = BUSY_TIMEOUT_MS
    ) -> IndexWriter:
        """Open the index of an agent, by its settings.

        Raises IndexFault for the index of another workspace.
        """
        memory = settings.memory
        writer = cls(
            settings.index_path,
            account_file=settings.account_path,
            cache_entries=memory.cache.max_entries if memory.cache.enabled else 0,
            clock=clock,
            busy_timeout_ms=busy_timeout_ms,
            lease_s=leases.lease_s(memory.remote.timeout_seconds),
        )
        try:
            with writer.session() as (connection, _):
                recorded = str(meta.get(connection, meta.WORKSPACE, ""))
                refuse_other_workspace(settings, recorded)
                if recorded != str(settings.workspace):
                    with transaction(connection):
                        meta.put(connection, meta.WORKSPACE, str(settings.workspace))
            writer.budget = Budget.of(writer.accounts.file, settings)
        except BaseException:
            writer.close()
            raise
        return writer

    @property
    def is_replaced(self) -> bool:
        """Whether the file is no longer at its path: moved aside, deleted, built again by another process."""
        return file_id(self.path) != self._file_id

    def close(self) -> None:
        if self._noted_minute:
            self._noted_minute = 0
            with suppress(IndexFault):
                self.note_minute()
        shorten_log(self.connection, self.path)
        self.connection.close()
        self.accounts.file.close()

    @contextmanager
    def session(self) -> Iterator[tuple[Connection, float]]:
        """Give the connection and the time to a block; the driver's errors become IndexFaults."""
        with faults(self.path):
            yield self.connection, self._clock.now()

    @contextmanager
    def transaction(self) -> Iterator[tuple[Connection, float]]:
        """Give the same as `session`, the whole block in one transaction."""
        with self.session() as (connection, now), transaction(connection):
            yield connection, now

    def note_minute(self) -> None:
        """Keep for the chart what was embedded and is pending: once a minute, and at the end."""
        with self.session() as (_, now):
            if (minute := int(now // 60)) > self._noted_minute:
                self._noted_minute = minute
                minutes.note(self.accounts, str(self.path), now)

    def end_leases(self) -> None:
        """End all leases: their requests are lost, and counted as paid for."""
        with self.transaction() as (connection, _):
            leases.end_overdue(connection)

    def store_file(self, row: FileRow, *, job: str = "") -> str:
        """Do as `store_files` for one file."""
        return self.store_files((row,), job=job)[0]

    def store_files(self, rows: Sequence[FileRow], *, job: str = "") -> list[str]:
        """Make the index agree with files: remove old chunks, store new ones, want their vectors.

        All in one transaction: a commit takes as long as a small file. Returns what changed of each, as
        `shared.index.chunks.Changes.kinds`. `job` is the token of the job that asked for the files; empty for
        a live edit.
        """
        with self.transaction() as (connection, now):
            target = identities.target(connection)
            # One of another index counts as a live edit.
            known = jobs.by_token(connection, job) if job else None
            changes = chunks.apply_files(connection, rows)
            vectors.release(connection, changes.orphans, now)
            if target is not None and changes.texts:
                texts = {digest: estimate_tokens(text) for digest, text in changes.texts.items()}
                cached = vectors.want(connection, target, texts, job=known.id if known else 0, now=now)
                if cached:
                    meta.add(connection, meta.CACHED_TOTAL, cached)
            arrived = jobs.files_arrived(
                connection,
                {
                    row.path: row.observed_ns
                    for row, kind in zip(rows, changes.kinds, strict=True)
                    if kind != "unknown"
                },
            )
        if arrived:
            # Without a provider, or when all its texts were cached, the last file is the end of a job.
            with self.session() as (connection, now):
                jobs.finish_settled(connection, now)
        return changes.kinds

    def store_vectors(self, answer: Answer) -> str:
        """Store what came of a request, and search the new model when that completes it.

        Returns why vectors were refused; see `shared.scheduling.leases.store_answer`.
        """
        with self.session() as (connection, now):
            refused = leases.store_answer(self.accounts, answer, now, self.budget)
            has_tokens = any(row.tokens for row in answer.vectors)
            row = identities.by_key(connection, answer.identity.key) if has_tokens else None
            if row is not None:
                token_rows.fit(connection, row.id)
            self._settle(connection, now)
        return refused

    def take_vectors(self, source: Connection) -> int:
        """Take over the vectors of another index, by identity and text hash; return how many were missing.

        Those of a model whose vectors have other dimensions here, or whose tokens have other axes, are left
        out. Safe to stop and to run again.
        """
        new = 0
        models = source.execute(
            "SELECT id, vector_dims, coalesce(projection, x''),"
            f" {', '.join(Identity.__struct_fields__)} FROM identities WHERE vector_dims > 0"
        ).fetchall()
        for theirs, size, projection, *parts in models:
            identity = Identity(**dict(zip(Identity.__struct_fields__, parts, strict=True)))
            known = identities.by_key(self.connection, identity.key)
            if known is not None:
                ours = token_rows.projection(self.connection, known.id)
                if known.vector_dims not in (0, size) or (ours and projection and ours != projection):
                    continue
            last = 0
            while rows := source.execute(
                _VECTORS_OF, (theirs, last, 4 * size, vectors.SLICE_ROWS)
            ).fetchall():
                last = rows[-1][0]
                taken = [VectorRow(hash=each[1], vector=each[2], tokens=each[3]) for each in rows]
                with self.transaction() as (connection, now):
                    row = identities.ensure(connection, identity, vector_dims=size)
                    if projection:
                        token_rows.set_projection(connection, row.id, projection)
                    # What no chunk needs yet is cached.
                    done = vectors.store(connection, row, taken, now + vectors.IMPORTED_KEEP_S)
                    new += done.total()
        with self.session() as (connection, now):
            self._settle(connection, now)
        return new

    def lease(
        self,
        caps: RequestCaps,
        *,
        credits: int,
        only_full: bool,
        only: Identity | None = None,
        batch: BatchSettings | None = None,
    ) -> list[leases.Request]:
        """Lease the requests to send now; none while the provider has a cooldown or is paused.

        `only`: the identity this process's workers can embed; texts that wait for another are left alone.
        `batch`: make the batches there are texts and places for first.
        """
        with self.session() as (connection, now):
            target = identities.target(connection)
            if target is None or (only is not None and only.key != target.identity.key):
                return []
            if meta.get(connection, meta.PAUSED, False):
                return []
            return leases.lease(
                self.accounts,
                self.budget,
                target,
                caps,
                now,
                now + self._lease_s,
                credits=credits,
                only_full=only_full,
                for_batch=batch is not None
                and batch_plan.plan(self.accounts, self.budget, target, batch, now),
            )

    def retry_in_s(self) -> float:
        """Return the seconds until a deferred text may be sent; 0 when none is, or an operator must act."""
        with self.session() as (connection, now):
            target = identities.target(connection)
            state = health.read(self.accounts, target.identity.provider) if target else Health()
            if target is None or state.manual or leases.tokens(connection):
                # While a request is in flight, its answer triggers the next one.
                return 0.0
            due = vectors.next_due(connection, target.id)
        return max(state.wait_s(now), due - now, 0.0)

    @staticmethod
    def _settle(connection: Connection, now: float) -> None:
        """Make bits, switch to a model that is complete, and end jobs: after vectors came or failed."""
        for row in (identities.active(connection), identities.target(connection)):
            if row and row.vector_dims:
                bits.make(connection, row.id, row.vector_dims)
        model_change.switch_when_complete(connection)
        jobs.finish_settled(connection, now)

    def sweep(self) -> list[str]:
        """End leases that are over, try failed texts again, prune the cache, finish what dead runs began.

        Returns the tokens of those leases.
        """
        with self.transaction() as (connection, now):
            over = leases.end_overdue(connection, now)
            ledger.forget_removed(connection, self._clock.now_ns() - ledger.TOMBSTONE_NS)
            if (target := identities.target(connection)) is not None:
                vectors.retry_failed(connection, target.id, due_before=now)
            batches.prune(connection)
            model_change.cache_retired(connection, now)
        with self.session() as (connection, now):
            self._settle(connection, now)
        self.tidy()
        return over

    def tidy(self) -> None:
        """Keep as many of the unused vectors as `cache` allows, and full text in few segments."""
        with self.session() as (connection, now):
            vectors.prune_cache(connection, self._cache_entries, now)
            if jobs.next_to_read(connection) is None:
                chunks.merge_full_text(connection)

    def retry_all(self) -> None:
        """Try failed texts again and poll open batches; not the texts of jobs that a person cancelled."""
        with self.transaction() as (connection, now):
            target = identities.target(connection)
            if target is not None:
                vectors.retry_failed(connection, target.id)
            batches.poll_now(connection, now)

    def due_batches(self) -> tuple[bool, float | None]:
        """Tell whether to call the worker of batches now; also seconds until the next call, None: never.

        For a step whose worker is at it, or was killed, it is called again after a while.
        """
        with self.session() as (connection, now):
            due, next_due = batches.due(connection, now)
        at = self._clock.monotonic()
        unsent = [step for step in due if at - self._batch_sent_at.get(step, -RESEND_S) >= RESEND_S]
        self._batch_sent_at = {step: at if step in unsent else self._batch_sent_at[step] for step in due}
        return bool(unsent), RESEND_S if due else None if next_due is None else max(next_due - now, 0.0)


def rescue(settings: AgentSettings, aside: Path) -> None:
    """Take over the sessions and vectors that can be read of an index that was moved aside."""
    with (
        suppress(IndexFault),
        faults(aside),
        closing(connect_read_only(aside)) as source,
        closing(IndexWriter.of(settings)) as writer,
    ):
        with suppress(IndexFault), faults(aside):
            for row in chunks.sessions_in(source):
                writer.store_file(row)
        writer.take_vectors(source)
