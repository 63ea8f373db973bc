"""Bring an index up to date with the disk, and wait until every vector is ready or failed.

What is waited for is read from rows, never from messages: the same loop watches threads of this process or a
fleet on other machines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
from msgspec.structs import replace

from memline.producers.backends import IndexReport, RunProgress
from memline.producers.runs.prepare import prepare
from memline.shared.batches import plan as batch_plan
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import choose_fallback
from memline.shared.embedders.local import downloads
from memline.shared.errors import IndexCorrupt, IndexMissing, IndexReplaced
from memline.shared.finding import Finding, note, problem
from memline.shared.findings.check import check
from memline.shared.findings.facts import Facts, sending
from memline.shared.index import chunks, identities, jobs, ledger, meta, vectors
from memline.shared.index.accounts import AccountFile, Accounts
from memline.shared.index.driver import faults, file_id, open_reader, snapshot
from memline.shared.index.identities import IdentityRow
from memline.shared.index.repair import move_aside
from memline.shared.index.vectors import Backlog
from memline.shared.index_writer import IndexWriter, rescue
from memline.shared.queue.feed import FileFeeder
from memline.shared.scheduling import health, leases, model_change
from memline.shared.scheduling.health import Health
from memline.shared.sync.plan import Plan
from memline.shared.words import counted

#: Findings that say what a run waits for.
_WAITING = ("rate_limited", "vectors_behind", "batch_blocked", "in_batch")

#: Seconds between two reads of the rows while waiting.
POLL_S = 0.05

#: Of the time, one part in so many is spent on reading them at most: in a large index that is not free.
SHARE = 20

#: Page cache of a run in KiB: it counts rows, in an index that has changed since it counted last.
CACHE_KIB = 2_048

#: Seconds in which a fallback takes over; a run that waits does not end for a provider that stopped before.
TAKE_OVER_S = 20.0

#: Seconds without any change after which a run says so, and after which it ends: half an hour of nothing is a
#: fault that no more waiting mends, unless a request may take as long.
QUIET_S = 60.0
STALLED_S = 1_800.0

#: Times a run begins again when its index turns out damaged, or is deleted or replaced meanwhile.
MAX_RESTARTS = 2

#: Failed texts and files named in a report at most; the counts are always whole.
MAX_FAILURES = 100


class _Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the rows say at one moment; the defaults are those of an index that embeds nothing."""

    target: IdentityRow | None = None
    backlog: Backlog = Backlog()
    health: Health = Health()
    batches: batch_plan.Waiting = batch_plan.Waiting()
    #: Files that paused jobs have not read.
    paused_files: int = 0


def bring_up_to_date(
    settings: Settings,
    agent: AgentSettings,
    *,
    force: bool = False,
    re_embed: bool = False,
    accept_removals: bool = False,
    on_progress: Callable[[RunProgress], None] = lambda _: None,
    on_plan: Callable[[Plan], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
    clock: Clock | None = None,
) -> IndexReport:
    """Make the index of `agent` agree with the disk and embed what is missing; report when all is settled.

    A damaged index is moved aside and built again from the files; a run whose index is deleted or replaced
    by another process begins again. Raises IndexFaults.
    """
    clock = clock or SystemClock()
    if downloads.missing(agent):
        downloads.fetch(agent)
    for restarts_left in range(MAX_RESTARTS, -1, -1):
        found = file_id(agent.index_path)
        try:
            started_ns = clock.now_ns()
            plan = prepare(agent, re_embed=re_embed, accept_removals=accept_removals, clock=clock)
            # A first run has made it by now.
            found = found or file_id(agent.index_path)
            on_plan(plan)
            with closing(IndexRun(settings, agent, plan, started_ns=started_ns, clock=clock)) as run:
                files = run.share_with_jobs(plan.files(force=force), force=force)
                if files or run.has_job_files or plan.index.backlog.pending or plan.index.open_batches:
                    run.work(files, on_progress=on_progress)
                with closing(IndexWriter.of(agent, clock=clock)) as writer:
                    # The sweep of a process that stays would come too late.
                    writer.tidy()
                return run.report()
        except (IndexCorrupt, IndexReplaced, IndexMissing) as error:
            if not restarts_left:
                raise
            then = "the run begins again"
            if isinstance(error, IndexCorrupt):
                aside = move_aside(agent.index_path, clock.now(), found)
                then = f"it was moved to {aside}, and" if aside else "it was replaced, and"
                if aside:
                    rescue(agent, aside)
                then = f"{then} the index is built again from the files"
            on_note(f"{error.message}; {then}.")
    raise AssertionError("the last run returns or raises")


class IndexRun:
    """Waits for one agent's run, from its plan to its report."""

    def __init__(
        self, settings: Settings, agent: AgentSettings, plan: Plan, *, started_ns: int, clock: Clock
    ) -> None:
        self._settings = settings
        self._agent = agent
        self._plan = plan
        self._started_ns = started_ns
        self._clock = clock
        # The processes of a fleet embed, whatever this one could.
        self._is_embedding = bool(settings.queue.url) or plan.choice.identity is not None
        self._file_id = file_id(agent.index_path)
        self._reader = open_reader(agent.index_path, cache_kib=CACHE_KIB)
        self._accounts = Accounts(index=self._reader, file=AccountFile(agent.account_path))
        #: Since when no text can be sent (monotonic seconds).
        self._stopped_since = math.inf
        self._switching_since = math.inf
        self._is_stalled = False
        self._timeout_s = agent.memory.remote.timeout_seconds
        #: The most files of jobs that were to be read at a moment of this run.
        self._job_files = 0
        with faults(agent.index_path):
            self._embedded_before = meta.get(self._reader, meta.EMBEDDED_TOTAL, 0)
            self._cached_before = meta.get(self._reader, meta.CACHED_TOTAL, 0)

    def close(self) -> None:
        self._reader.close()
        self._accounts.file.close()

    def share_with_jobs(self, files: list[tuple[str, int]], *, force: bool) -> list[tuple[str, int]]:
        """Make a job of these files if they are the first import, or all are read again; return the others.

        What an open job reads already is left to it: an import that was interrupted goes on as that job.
        """
        writing = IndexWriter.of(self._agent, clock=self._clock)
        with closing(writing) as writer, writer.transaction() as (connection, _):
            waiting = jobs.waiting_files(connection)
            is_import = not self._plan.index.files and not waiting
            if not force:
                files = self._plan.outside_jobs(files, waiting)
            # Only a backfill goes by batch.
            has_batches = self._agent.memory.remote.batch.enabled
            if not files or not (force or is_import or has_batches):
                return files
            jobs.create(
                connection,
                jobs.IMPORT if is_import else jobs.REINDEX,
                by=jobs.asker(),
                now_ns=self._clock.now_ns(),
                what="" if is_import else "all files" if force else "changed files",
                files=files,
                force=force,
            )
        return []

    @property
    def has_job_files(self) -> bool:
        """Tell whether a running job has files that were not read."""
        with faults(self._agent.index_path):
            return jobs.next_to_read(self._reader) is not None

    def work(
        self,
        files: list[tuple[str, int]],
        *,
        on_progress: Callable[[RunProgress], None],
    ) -> None:
        """Let the workers of this process, or of the fleet, read these files and embed what is missing.

        The files of jobs are read as well.

        Returns when no vector is pending, the provider cannot go on, or nothing moves any more. Raises
        IndexReplaced when the index is deleted or another one is at its path, and the error that ended an
        actor.
        """
        # Imported only when there is work: the actors and dramatiq cost 75 ms of CPU.
        from memline.producers.runs.in_process import feeder_of, workers_of

        path = self._agent.index_path
        with workers_of(self._settings, path, clock=self._clock) as workers:
            # Not before: the workers of another run in this process may have had to end first.
            moved_at, progress = time.monotonic(), RunProgress(files=-1)
            workers.wake(self._agent.agent)
            feeder = feeder_of(self._agent, files, scanned_ns=self._started_ns)
            while True:
                began = time.monotonic()
                # First: an actor that writes to a deleted file fails with an error that hides the reason.
                self._refuse_replaced()
                if (error := workers.fault()) is not None:
                    raise error
                before = progress
                with faults(path):
                    feeder.advance(self._reader)
                    with snapshot(self._reader):
                        progress, is_over = self._measure(feeder)
                if progress != before or progress.waiting:
                    moved_at = began
                quiet_s = began - moved_at
                workers.wants_vectors = progress.vectors_done < progress.vectors
                words = workers.missing() or (_quiet_words(quiet_s, progress) if quiet_s > QUIET_S else "")
                on_progress(replace(progress, waiting=words or progress.waiting))
                self._is_stalled = quiet_s > self._stalled_s
                if is_over or self._is_stalled:
                    return
                self._clock.sleep(max(POLL_S, (SHARE - 1) * (time.monotonic() - began)))

    def _refuse_replaced(self) -> None:
        if file_id(self._agent.index_path) != self._file_id:
            what = f"the index {self._agent.index_path} was deleted or replaced during the run"
            raise IndexReplaced(what, hint="memline index")

    def report(self) -> IndexReport:
        """Report what happened, from the rows. Raises IndexReplaced: those of a deleted file say nothing."""
        self._refuse_replaced()
        connection, changes = self._reader, self._plan.changes
        with faults(self._agent.index_path):
            rows = self._rows()
            target, backlog = rows.target, rows.backlog
            bad = ledger.problems(connection)
            left_out = ledger.left_out(connection)
            failures = [{"path": entry.path, "reason": entry.reason or entry.outcome} for entry in bad]
            failed = vectors.failures(connection, target.id, MAX_FAILURES) if target else ()
            failures += [{"textHash": text, "path": path or "", "reason": why} for text, why, path in failed]
            with closing(self._facts()) as facts:
                findings = check(facts, *self._met(rows))
                unread = facts.unread_notes
            in_batches = 0 if rows.batches.blocked else rows.batches.texts + rows.batches.queued
            # Vectors are missing that the user asked for, and that will not come by themselves.
            is_incomplete = self._plan.choice.requested not in ("auto", "none")
            if self._is_embedding:
                is_incomplete = backlog.pending > in_batches
            return IndexReport(
                agent=self._agent.agent,
                files={
                    # As `status` counts them: what has no text is left out, and neither added nor unchanged.
                    "seen": self._plan.total_files,
                    "added": len({*changes.added} - left_out),
                    "changed": len({*changes.changed, *changes.growing} - left_out),
                    "removed": len(changes.removed),
                    "unchanged": len({*changes.unchanged} - left_out),
                    "failed": len(bad),
                },
                chunks=chunks.count(connection),
                vectors={
                    "embedded": meta.get(connection, meta.EMBEDDED_TOTAL, 0) - self._embedded_before,
                    "cached": meta.get(connection, meta.CACHED_TOTAL, 0) - self._cached_before,
                    "pending": backlog.pending,
                    "failed": backlog.failed,
                },
                provider=target.identity.provider if target else "none",
                model=target.identity.model if target else "",
                seconds=(self._clock.now_ns() - self._started_ns) / 1e9,
                failures=failures,
                findings=findings,
                batches=tuple(
                    {
                        "token": batch.token,
                        "job": batch.job_id,
                        "state": batch.provider_state or batch.state,
                        "texts": batch.rows,
                        "error": batch.error,
                    }
                    for batch in rows.batches.at_provider
                ),
                failed=bool(
                    failures
                    or backlog.failed
                    or self._is_stalled
                    or is_incomplete
                    or unread
                    or not self._agent.workspace.is_dir()
                    or rows.paused_files
                ),
            )

    def _facts(self) -> Facts:
        """Return what is known as the rows are now; of the disk what the run began with."""
        return Facts(
            self._agent,
            self._plan.choice,
            self._reader,
            now=self._clock.now(),
            plan=self._plan,
            files_behind=0,
            queue=self._settings.queue.address,
        )

    def _met(self, rows: _Rows) -> Iterator[Finding]:
        """Yield what this run met: that nothing moved any more, and a batch that failed."""
        if self._is_stalled:
            what = f"nothing moved for {self._stalled_s / 60:.0f} min"
            what += f"; {counted(rows.backlog.pending, 'vector', 'are')} pending"
            yield problem("stalled", what, "memline doctor")
        since = self._started_ns / 1e9
        if rows.target and (batch := batch_plan.failed_since(self._reader, rows.target.id, since)):
            what = f"batch {batch.token[:8]} failed, the texts it did not bring are sent in requests"
            yield note("batch_blocked", f"{what}: {batch.error}", batch.action or "memline jobs", batch.token)

    def _rows(self) -> _Rows:
        """Read the rows that tell how far the run is."""
        connection = self._reader
        target = identities.target(connection)
        paused_files = jobs.count_waiting(connection, state=jobs.PAUSED)
        if target is None:
            return _Rows(paused_files=paused_files)
        batch, since = self._agent.memory.remote.batch, self._started_ns / 1e9
        return _Rows(
            target=target,
            backlog=vectors.backlog(connection, target.id),
            health=health.read(self._accounts, target.identity.provider),
            batches=batch_plan.waiting(connection, target.id, batch, since=since),
            paused_files=paused_files,
        )

    def _measure(self, feeder: FileFeeder) -> tuple[RunProgress, bool]:
        """Measure how far the run is, and whether there is nothing more to wait for."""
        rows, now, waiting = self._rows(), self._clock.now(), ""
        backlog, batches, state = rows.backlog, rows.batches, rows.health
        if batches.at_provider or batches.is_busy or state.wait_s(now):
            with closing(self._facts()) as facts:
                waiting = "; ".join(each.what for each in check(facts) if each.code in _WAITING)
        job_files = jobs.count_waiting(self._reader)
        self._job_files = max(self._job_files, job_files)
        progress = RunProgress(
            files_done=feeder.done + self._job_files - job_files,
            files=feeder.total + self._job_files,
            vectors_done=backlog.ready + backlog.failed,
            vectors=backlog.ready + backlog.failed + backlog.pending,
            waiting=waiting,
            request_rows=state.max_rows,
        )
        may_leave = batches.may_leave(self._agent.memory.remote.batch)
        in_jobs, queued = (batches.texts, batches.queued) if may_leave else (0, 0)
        is_over = backlog.in_progress <= in_jobs + queued and not batches.is_busy
        if backlog.leased > in_jobs:
            self._stopped_since = math.inf
        is_stopped = backlog.leased <= in_jobs and self._is_stopped(rows)
        is_read = feeder.done == feeder.total and not job_files
        is_over = is_over and not (is_read and self._is_switching(rows))
        return progress, is_read and (is_over or is_stopped or not self._is_embedding)

    def _is_switching(self, rows: _Rows) -> bool:
        """Tell whether another model was just named, and its texts are about to be wanted."""
        if rows.target is None or not model_change.is_any_text_missing(self._reader, rows.target.id):
            return False
        self._switching_since = min(self._switching_since, time.monotonic())
        return time.monotonic() - self._switching_since <= TAKE_OVER_S

    def _is_stopped(self, rows: _Rows) -> bool:
        """Tell whether no text is sent until the user acts, or until a time that is far."""
        with closing(self._facts()) as facts:
            stop = sending(facts)
        if stop is None or stop.passes:
            self._stopped_since = math.inf
            return False
        if self._stopped_since == math.inf:
            # A request is counted a moment before its lease is seen: the next look tells.
            self._stopped_since = time.monotonic()
            return False
        choice, target = self._plan.choice, rows.target
        is_first = target and choice.identity and choice.identity.key == target.identity.key
        # A fallback helps against nothing but what is wrong with its provider.
        if not is_first or (target and stop.subject != target.identity.provider):
            return True
        if choose_fallback(self._agent, choice) is None:
            return True
        # The store worker is about to give the texts to the fallback.
        return time.monotonic() - self._stopped_since > TAKE_OVER_S

    @property
    def _stalled_s(self) -> float:
        """Return the seconds without a change that end the run: longer than any request may last."""
        return max(STALLED_S, leases.lease_s(self._timeout_s))


def _quiet_words(quiet_s: float, progress: RunProgress) -> str:
    """Say that nothing has moved for so long, and whether requests have shrunk."""
    words = f"nothing has moved for {quiet_s / 60:.0f} min"
    rows = progress.request_rows
    return (
        f"{words}; requests took too long or failed and have {counted(rows, 'text')} at most now"
        if rows
        else words
    )
