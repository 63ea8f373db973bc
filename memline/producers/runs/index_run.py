"""Bring an index up to date with the disk, and wait until every vector is ready or failed.

What is waited for is read from rows, never from messages: the same loop watches threads of this process or a
fleet on other machines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeVar

from msgspec.structs import replace

from memline.producers.backends import IndexReport, RunProgress
from memline.shared.batches import plan as batch_plan
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose, choose_fallback
from memline.shared.embedders.local import downloads
from memline.shared.errors import IndexCorrupt, IndexFault
from memline.shared.findings.check import check, check_common
from memline.shared.findings.conditions import has_unread_notes
from memline.shared.findings.facts import Facts, sending
from memline.shared.index import batches, chunks, identities, ledger, meta, vectors
from memline.shared.index.driver import faults, file_id, open_reader, snapshot
from memline.shared.index.hold import holder_of
from memline.shared.index.maintenance import move_aside
from memline.shared.index.vectors import Backlog
from memline.shared.index_writer import IndexWriter, rescue
from memline.shared.queue.messages import Sweep
from memline.shared.scheduling import jobs, leases, model_change
from memline.shared.sync.plan import Plan, make_plan
from memline.shared.sync.staleness import DiskState

T = TypeVar("T")

#: Findings that say what a run waits for.
_WAITING = ("rate_limited", "breaker_open", "vectors_behind", "batch_blocked", "in_batch")

#: Seconds of a wait that are not worth a word.
_SHORT_WAIT_S = 3.0

#: Seconds between two reads of the rows while waiting.
POLL_S = 0.05

#: Of the time, one part in so many is spent on reading them at most: in a large index that is not free.
SHARE = 20

#: Seconds without any change after which a run ends, and after which it ends where nothing is sent until the
#: user acts: a request is counted a moment before its lease is seen, and to name a fallback takes longer.
QUIET_S = 60.0
SETTLE_S = 0.2
TAKE_OVER_S = 20.0

#: How often a process builds an index again that was found damaged: then the disk is at fault.
REBUILDS = 3

#: Failed texts and files named in a report at most; the counts are always whole.
MAX_FAILURES = 100


def bring_up_to_date(
    settings: Settings,
    agent: AgentSettings,
    *,
    force: bool = False,
    re_embed: bool = False,
    accept_removals: bool = False,
    on_progress: Callable[[RunProgress], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
    clock: Clock | None = None,
) -> IndexReport:
    """Make the index of `agent` agree with the disk and embed what is missing; report when all is settled.

    A damaged index is moved aside and built again from the files. Raises IndexFaults.
    """
    clock = clock or SystemClock()
    downloads.fetch(agent)

    def run() -> IndexReport:
        started_ns, choice = clock.now_ns(), choose(agent)
        with closing(IndexWriter.of(agent, clock=clock)) as writer:
            with writer.session() as (connection, now):
                # A person waits for it: a provider that stopped is tried again.
                model_change.switch_back(writer.accounts, choice, now)
                writer.retry_all()
                if re_embed:
                    model_change.forget_vectors(connection, now)
                plan = make_plan(agent, choice, connection, accepts_removals=accept_removals)
            has_work = _make_job(writer, plan, force=force)
        with closing(IndexRun(settings, agent, plan, started_ns=started_ns, clock=clock)) as run:
            if has_work:
                run.work(on_progress=on_progress)
            with closing(IndexWriter.of(agent, clock=clock)) as writer:
                # The sweep of a process that stays would come too late.
                writer.tidy()
            return run.report()

    return build_again_if_damaged([agent], run, on_note=on_note)


def _make_job(writer: IndexWriter, plan: Plan, *, force: bool) -> bool:
    """Make a job of the files that are to be read, with `force` of all; tell whether workers have work.

    What an open job reads already is left to it: a run that was interrupted goes on as that job.
    """
    files = plan.files(force=force)
    with writer.transaction() as (connection, now):
        jobs.take_up(connection)
        waiting = jobs.waiting_files(connection)
        is_import = plan.is_first and not waiting
        if not force:
            files = plan.outside_jobs(files, waiting)
        if files:
            jobs.create(
                connection,
                jobs.IMPORT if is_import else jobs.REINDEX,
                now_ns=int(now * 1e9),
                what="" if is_import else "all files" if force else "changed files",
                files=files,
                force=force,
            )
        target = identities.target(connection)
        is_pending = target is not None and vectors.is_pending(connection, target.id)
        return is_pending or bool(jobs.next_to_read(connection) or batches.open_batches(connection))


def build_again_if_damaged(
    agents: Sequence[AgentSettings],
    work: Callable[[], T],
    *,
    on_note: Callable[[str], None],
    times: int = REBUILDS,
) -> T:
    """Do work on the indexes of agents, and again when one of them is found damaged.

    That one is moved aside, and what can be read of it is taken over. Raises what the work raises.
    """
    before = {agent.index_path: file_id(agent.index_path) for agent in agents}
    try:
        return work()
    except IndexCorrupt as error:
        damaged = next((each for each in agents if str(each.index_path) in error.message), None)
        if damaged is None or not times:
            raise
        # A file that was not there before is the one this process made; another process may have put a new
        # one in its place since.
        path = damaged.index_path
        if aside := move_aside(path, time.time(), before[path] or file_id(path)):
            rescue(damaged, aside)
        then = f"it was moved to {aside}" if aside else "it was replaced"
        on_note(f"{error.message}; {then}, and the index is built again from the files.")
    return build_again_if_damaged(agents, work, on_note=on_note, times=times - 1)


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
        self._reader = open_reader(agent.index_path)
        #: The most files of jobs that were to be read at a moment of this run.
        self._job_files = 0
        #: The vectors and files to read as they were seen last, and since when (monotonic seconds).
        self._seen, self._unchanged_since = (Backlog(), 0), clock.monotonic()
        self._has_fallback = choose_fallback(agent, plan.choice) is not None
        with faults(agent.index_path):
            self._embedded_before = meta.get(self._reader, meta.EMBEDDED_TOTAL, 0)
            self._cached_before = meta.get(self._reader, meta.CACHED_TOTAL, 0)

    def close(self) -> None:
        self._reader.close()

    def work(self, *, on_progress: Callable[[RunProgress], None]) -> None:
        """Let the workers of this process, or of the fleet, read the files of jobs and embed what is missing.

        Returns when no vector is pending, or the provider cannot go on. Raises IndexFault when the index
        is deleted or another one is at its path, or who has it reads no file, and the error of an actor.
        """
        # Imported only when there is work: the actors and dramatiq cost 75 ms of CPU.
        from memline.producers.runs.in_process import local_workers
        from memline.shared.queue import broker, fleet_workers

        settings, agent = self._settings, self._agent
        if settings.queue:
            workers = fleet_workers.fleet_workers(settings.queue, agent)
        else:
            workers = local_workers(settings, clock=self._clock)
        with workers as check_workers:
            # Not before: the workers of another run in this process may have had to end first.
            self._unchanged_since = self._clock.monotonic()
            progress = RunProgress()
            # The store worker takes up what waits in the rows.
            broker.send(Sweep(agent=self._agent.agent))
            while True:
                began = time.monotonic()
                # First: an actor that writes to a deleted file fails with an error that hides the reason.
                self._refuse_replaced()
                words = check_workers(wants_vectors=progress.vectors_done < progress.vectors)
                with self._facts() as facts:
                    progress, is_over = self._measure(facts)
                on_progress(replace(progress, waiting=words or progress.waiting))
                if is_over:
                    return
                self._clock.sleep(max(POLL_S, (SHARE - 1) * (time.monotonic() - began)))

    def _refuse_replaced(self) -> None:
        if file_id(self._agent.index_path) != self._file_id:
            what = f"the index {self._agent.index_path} was deleted or replaced during the run"
            raise IndexFault(what, hint="memline index")

    @contextmanager
    def _facts(self) -> Iterator[Facts]:
        """Give what the rows say at one moment; of the disk what the run began with."""
        with faults(self._agent.index_path), snapshot(self._reader):
            yield Facts(
                self._agent,
                self._plan.choice,
                self._reader,
                now=self._clock.now(),
                plan=self._plan,
                on_disk=DiskState(emptied=self._plan.emptied),
                queue=self._settings.queue,
            )

    def _measure(self, facts: Facts) -> tuple[RunProgress, bool]:
        """Measure how far the run is, and whether there is nothing more to wait for."""
        backlog, (in_batches, is_busy), waiting = facts.backlog, self._batches(facts), ""
        job_files = jobs.count_waiting(self._reader)
        is_idle = not job_files and backlog.leased <= in_batches
        stop = sending(facts) if is_idle else None
        is_stopped = stop is not None and not stop.passes
        requests = facts.requests
        if facts.batches or (requests.wait_s(facts.now) > _SHORT_WAIT_S and not requests.has_given_up):
            waiting = "; ".join(each.what for each in check(facts) if each.code in _WAITING)
        if (backlog, job_files) != self._seen or (waiting and not is_stopped):
            self._seen, self._unchanged_since = (backlog, job_files), self._clock.monotonic()
        self._job_files = max(self._job_files, job_files)
        progress = RunProgress(
            files_done=self._job_files - job_files,
            files=self._job_files,
            vectors_done=backlog.ready + backlog.failed,
            vectors=backlog.ready + backlog.failed + backlog.pending,
            waiting=waiting,
        )
        is_over = not job_files and backlog.in_progress <= in_batches and not is_busy
        if is_over and facts.target:
            # Another model was perhaps just named, and its texts are about to be wanted.
            is_over = not model_change.is_any_text_missing(self._reader, facts.target.id)
        quiet_s = self._clock.monotonic() - self._unchanged_since
        longest_s = QUIET_S
        if not is_idle:
            # What is in flight may last as long as a lease.
            longest_s += leases.lease_s(self._agent.memory.remote.timeout_seconds)
        elif stop and is_stopped:
            # Only a provider that fails has a fallback, and that one has none.
            takes_over = self._has_fallback and stop.code == "breaker_open" and facts.fallback is None
            longest_s = TAKE_OVER_S if takes_over else SETTLE_S
        is_stuck = quiet_s > longest_s
        if is_stuck and job_files:
            path = self._agent.index_path
            holder = holder_of(path)
            who = f"process {holder.pid} (memline {holder.kind})" if holder else "no process"
            what = f"nothing of {path} has moved for {quiet_s:.0f} s; {who} has it, and reads no file of it"
            raise IndexFault(what, hint="end that process, then: memline index")
        return progress, is_over or is_stuck or not (job_files or self._is_embedding)

    def _batches(self, facts: Facts) -> tuple[int, bool]:
        if facts.target is None:
            return 0, False
        batch, since = self._agent.memory.remote.batch, self._started_ns / 1e9
        return batch_plan.waiting(self._reader, facts.target.id, batch, since=since)

    def report(self) -> IndexReport:
        """Report what happened, from the rows. Raises IndexFault: those of a deleted file say nothing."""
        self._refuse_replaced()
        connection, changes = self._reader, self._plan.changes
        with self._facts() as facts:
            target, backlog, (in_batches, _) = facts.target, facts.backlog, self._batches(facts)
            bad = ledger.problems(connection)
            left_out = ledger.left_out(connection)
            failures = [{"path": entry.path, "reason": entry.reason or entry.outcome} for entry in bad]
            failed = vectors.failures(connection, target.id, MAX_FAILURES) if target else ()
            failures += [{"textHash": text, "path": path or "", "reason": why} for text, why, path in failed]
            is_blocked = any(batch.action for batch in facts.batches)
            # Vectors are missing that the user asked for, and that will not come by themselves.
            is_incomplete = self._plan.choice.requested not in ("auto", "none")
            if self._is_embedding:
                is_incomplete = backlog.pending > (0 if is_blocked else in_batches)
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
                # What is pending now may wait for a process, which is no matter of one agent.
                findings=check(
                    facts, *check_common(self._settings, [self._agent]) if backlog.pending else ()
                ),
                failed=bool(
                    failures
                    or backlog.failed
                    or is_incomplete
                    or has_unread_notes(facts)
                    or self._plan.discovery.unlisted
                    or not facts.has_workspace
                    or jobs.count_waiting(connection, state=jobs.PAUSED)
                ),
            )
