"""Follow the files of an agent: a full scan at the start, then what the watchers report.

Only paths are sent. What was enqueued and did not arrive in the ledger is found again by the next scan, so a
lost message costs `SCAN_EVERY_S`, not a file, and a queue that cannot be reached costs nothing but time.
"""

import math
import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

from memline.producers.watching.watcher import Watcher
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexCorrupt, MemlineError, QueueError
from memline.shared.index import driver, ledger
from memline.shared.index_writer import IndexWriter
from memline.shared.logs import Log
from memline.shared.queue.broker import send
from memline.shared.queue.feed import AHEAD_FILES, enqueue_files
from memline.shared.queue.messages import Sweep
from memline.shared.scheduling import jobs
from memline.shared.sessions.transcripts import Transcripts, transcripts_of
from memline.shared.sources.paths import MEMORY, MemoryPaths, is_archive, is_transcript
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sync.folders import WatchedFiles
from memline.shared.sync.plan import Changes, make_plan

#: Times the quiet time that changes wait at most while a note is saved without a pause.
CEILING = 5.0

#: Seconds after a change of a transcript until its growth is measured; writing on does not put it off.
TRANSCRIPT_S = 5.0

#: Seconds without a change after which what there is of a transcript is read, however little.
QUIET_S = 300.0

#: Seconds between two scans of all files by size and time; 5,000 files cost about 0.1 s of CPU.
SCAN_EVERY_S = 60.0

#: Seconds after which all files are scanned again when the queue could not be reached.
QUEUE_RETRY_S = 2.0

#: Seconds between two scans at most, while what is enqueued does not arrive: the workers refuse it, and each
#: message may be one more dead letter.
MAX_SCAN_EVERY_S = 3_600.0

_log = Log("follow")


class Follower:
    """Follows the files of one agent; a context manager. The broker of this process is set before."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        on_change: Callable[[AgentSettings], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        """`on_change` is told that files changed."""
        self._settings = settings
        self._on_change = on_change
        self._clock = clock or SystemClock()
        self._transcripts = transcripts_of(settings)
        self._watchers: list[Watcher] = []
        sync = settings.memory.sync
        if sync.watch and MEMORY in settings.memory.sources:
            quiet_s = sync.watch_debounce_ms / 1000
            self._watch(MemoryPaths.of(settings), quiet_s, CEILING * quiet_s)
        if sync.watch and self._transcripts:
            self._watch(self._transcripts, TRANSCRIPT_S, TRANSCRIPT_S)
        #: Whether the next scan reads all transcripts to their ends, whatever has grown.
        self._is_catching_up = True
        #: Whether a scan finds the first import, or what changed while this process was off. It becomes a
        #: job, which files that are saved meanwhile overtake; so does a scan that finds very many.
        self._is_first_look = True
        self._next_scan_s = 0.0
        #: Whether a watcher asks for a scan.
        self._is_scan_asked = False
        #: What the last scan enqueued, and the seconds until the next one while that does not arrive.
        self._enqueued: list[tuple[str, int]] = []
        self._wait_s = SCAN_EVERY_S
        #: The error that was logged last.
        self._logged = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for watcher in self._watchers:
                stack.enter_context(watcher)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _watch(self, files: WatchedFiles, quiet_s: float, most_s: float) -> None:
        self._watchers.append(Watcher(files, quiet_s=quiet_s, most_s=most_s))

    def mode(self) -> str:
        """Return how the files are followed, and why they are polled if they are."""
        if not self._settings.workspace.is_dir():
            return "the folder is missing, and what was indexed of it is kept"
        # One that polls tells more than one that watches.
        modes = [f"{each.mode} ({each.reason})" if each.reason else each.mode for each in self._watchers]
        return max(modes, key=len, default="not watching (sync.watch is off)")

    def tick(self) -> None:
        """Act on what changed, and scan all files when that is due; call it several times a second.

        What fails is logged once, and the files are followed all the same: one odd record in one transcript
        must not end what runs for weeks. Raises IndexCorrupt.
        """
        try:
            for watcher in self._watchers:
                paths, is_scan_due = watcher.tick()
                self._is_scan_asked |= is_scan_due
                if paths:
                    self._enqueue(sorted(paths))
            if self._is_scan_asked or self._clock.monotonic() >= self._next_scan_s:
                self._scan()
                self._logged = ""
        except Exception as error:
            if isinstance(error, QueueError):
                self._next_scan_s = self._clock.monotonic() + QUEUE_RETRY_S
            words = str(error)
            if not isinstance(error, MemlineError | OSError):
                # A fault in our code is named by its place: its text may quote a note.
                frame = traceback.extract_tb(error.__traceback__)[-1]
                words = f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"
            if words != self._logged:
                self._logged = words
                _log.error("follow.failed", agent=self._settings.agent, error=words)
            if isinstance(error, IndexCorrupt):
                raise

    def _enqueue(self, changed: list[str]) -> None:
        """Send changed paths to the chunk workers."""
        _log.info("files.changed", agent=self._settings.agent, files=len(changed))
        self._on_change(self._settings)
        there = [path for path in changed if is_transcript(path) or self._is_there(path)]
        # A scan tells whether the root of one that is gone was emptied.
        self._is_scan_asked |= there != changed
        enqueue_files(self._settings.agent, there, index=self._settings.index_path.name)

    def _is_there(self, path: str) -> bool:
        return os.path.lexists(self._settings.workspace / path)

    def _scan(self) -> None:
        """Compare all files with the ledger and begin to feed what differs."""
        sync = self._settings.memory.sync
        every_s = [SCAN_EVERY_S] * sync.watch + [60.0 * sync.interval_minutes] * (sync.interval_minutes > 0)
        # Set before the scan: one that is requested meanwhile is not forgotten.
        is_asked, self._is_scan_asked = self._is_scan_asked, False
        self._next_scan_s = self._clock.monotonic() + min(every_s, default=math.inf)
        with driver.reading_if_any(self._settings.index_path) as reader:
            plan = make_plan(self._settings, choose(self._settings), reader)
            waiting = jobs.waiting_files(reader) if reader else {}
        if sync.on_session_start and any(
            is_transcript(path) and not is_archive(path) for path in plan.changes.added
        ):
            # The user of a new session is going to ask about the last one.
            self._is_catching_up = True
        files = plan.sized((*plan.changes.to_read(tails=False), *self._due_tails(plan.changes)))
        files = plan.outside_jobs(files, waiting)
        is_first_look, self._is_first_look = self._is_first_look, False
        if files:
            _log.info("scan.changes", agent=self._settings.agent, files=len(files))
            self._on_change(self._settings)
            if is_first_look or len(files) > AHEAD_FILES:
                self._make_job(files, jobs.IMPORT if plan.is_first else jobs.BACKFILL)
            else:
                paths = [path for path, _ in files]
                enqueue_files(self._settings.agent, paths, index=self._settings.index_path.name)
        # One that a watcher asks for may come before what the last one enqueued.
        is_stuck = bool(files) and files == self._enqueued and not is_asked
        self._enqueued = files
        self._wait_s = min(2 * self._wait_s, MAX_SCAN_EVERY_S) if is_stuck else SCAN_EVERY_S
        if is_stuck:
            self._next_scan_s = self._clock.monotonic() + self._wait_s

    def _make_job(self, files: list[tuple[str, int]], kind: str) -> None:
        """Write a job down that reads these files, and wake the store worker, which feeds them."""
        writing = IndexWriter.of(self._settings, clock=self._clock)
        with closing(writing) as writer, writer.transaction() as (connection, _):
            now_ns = self._clock.now_ns()
            job = jobs.create(connection, kind, now_ns=now_ns, files=files)
        _log.info("job.made", agent=self._settings.agent, job=job.token, kind=kind)
        send(Sweep(agent=self._settings.agent))

    def _due_tails(self, changes: Changes) -> Sequence[str]:
        """Return the transcripts that grew a little and are to be read on all the same."""
        if self._is_catching_up or not self._settings.memory.sync.watch:
            self._is_catching_up = False
            return changes.growing
        if not changes.growing or not self._transcripts:
            return ()
        with driver.reading(self._settings.index_path) as reader:
            entries = [entry for path in changes.growing if (entry := ledger.entry(reader, path))]
        return [each.path for each in entries if self._is_due(self._transcripts, each.path, each.lines)]

    def _is_due(self, transcripts: Transcripts, path: str, known_lines: int) -> bool:
        """Tell whether a transcript came to rest, or has enough more lines than were read."""
        try:
            with transcripts.open(path) as (file, lines):
                if self._clock.now() - file.mtime_ns / 1e9 >= QUIET_S:
                    return True
                count = sum(line.endswith(b"\n") for line in lines)
        except (FileRefused, OSError):
            # Gone, or not a file any more: reading it says what it is.
            return True
        return count - known_lines >= self._settings.memory.sync.sessions.delta_messages
