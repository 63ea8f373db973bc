"""Follow files until the process is told to stop: with workers in this process, or for those of a fleet."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from sqlite3 import Connection

from memline.producers.bridges.qmd.updates import QmdUpdates
from memline.producers.runs.in_process import INDEXING, InProcessWorkers
from memline.producers.runs.parts import Part, run
from memline.producers.runs.prepare import prepare
from memline.producers.watching.flush_sessions import FlushSessions
from memline.producers.watching.follow import Follower
from memline.producers.watching.loop_errors import LoopErrors
from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexCorrupt, IndexFault
from memline.shared.findings.check import check
from memline.shared.findings.facts import Facts
from memline.shared.index import driver
from memline.shared.index.driver import file_id
from memline.shared.index.hold import FOLLOWER, hold
from memline.shared.index.repair import move_aside
from memline.shared.index_writer import rescue
from memline.shared.liveness import Liveness
from memline.shared.logs import Log
from memline.shared.queue.broker import send
from memline.shared.queue.messages import Sweep
from memline.shared.sources.outcomes import INDEXED
from memline.shared.words import counted

Note = Callable[[str], None]

#: Seconds between two looks at what was stored, and at what is wrong.
LOOK_EVERY_S = 1.0
TROUBLE_EVERY_S = 5.0

#: Files that get a line each at a time; more are counted.
MOST_LINES = 10

#: Seconds for which a file may be stored later than one that was read after it.
LATE_S = 60.0

_STORED = """
SELECT path, observed_ns, outcome, (SELECT count(*) FROM chunks WHERE file_id = files.id)
FROM files WHERE observed_ns > ? ORDER BY observed_ns, path
"""


class Lines:
    """Says what was stored of one agent's files, and what is wrong; for a terminal."""

    def __init__(self, settings: AgentSettings, on_note: Note) -> None:
        self._settings = settings
        self._on_note = on_note
        self._since_ns = time.time_ns()
        #: Path -> when the file was read that has had its line.
        self._done: dict[str, int] = {}
        self._written: tuple[object, ...] = ()
        self._look_at = self._trouble_at = time.monotonic()
        self._trouble = ""

    def tick(self) -> None:
        """Say what is new; opens the index only when it was written, or what is wrong is due."""
        now, written = time.monotonic(), self._stamp()
        is_due = now >= self._trouble_at + TROUBLE_EVERY_S
        if now < self._look_at + LOOK_EVERY_S or (written == self._written and not is_due):
            return
        self._look_at, self._written = now, written
        # The part that failed says so; this only looks.
        with suppress(IndexFault), driver.reading_if_any(self._settings.index_path) as reader:
            if reader is not None:
                self._say_stored(reader)
                if is_due:
                    self._trouble_at = now
                    self._say_trouble(reader)

    def _say_stored(self, reader: Connection) -> None:
        self._since_ns = max(self._since_ns, time.time_ns() - int(LATE_S * 1e9))
        rows = reader.execute(_STORED, (self._since_ns,)).fetchall()
        new = [row for row in rows if self._done.get(row[0]) != row[1]]
        self._done = {path: observed_ns for path, observed_ns, *_ in rows}
        if len(new) > MOST_LINES:
            self._on_note(f"memline: {counted(len(new), 'file')} read")
            return
        for path, _, outcome, chunks in new:
            words = counted(chunks, "chunk") if outcome == INDEXED else outcome.replace("_", " ")
            self._on_note(f"memline: {path}: {words}")

    def _say_trouble(self, reader: Connection) -> None:
        """Say the most urgent problem or warning, once; its words may change every second."""
        with closing(Facts(self._settings, choose(self._settings), reader, now=time.time())) as facts:
            first = next((each for each in check(facts) if each.is_trouble), None)
        if first is not None and first.code != self._trouble:
            advice = f" (try: {first.action})" if first.action else ""
            self._on_note(f"memline: agent {self._settings.agent}: {first.what}{advice}")
        self._trouble = first.code if first is not None else ""

    def _stamp(self) -> tuple[object, ...]:
        """Return what differs once the index was written: SQLite writes its log first."""
        found = []
        for ending in ("", "-wal"):
            with suppress(OSError):
                status = os.stat(f"{self._settings.index_path}{ending}")
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)


class Following:
    """Follows the files of agents and puts changes on the queue: a part of a process (`runs.parts`).

    The broker of this process is set before.
    """

    def __init__(self, settings: Settings, agents: Sequence[AgentSettings], *, on_note: Note | None = None):
        """With `on_note` it says what becomes of the files, and raises IndexCorrupt for a damaged index."""
        self._settings = settings
        self._agents = agents
        self._on_note = on_note
        self._is_old = False

    def __enter__(self) -> Following:
        with ExitStack() as stack:
            self._errors = LoopErrors()
            self._qmd = stack.enter_context(QmdUpdates(self._agents))
            stack.enter_context(FlushSessions(self._agents))
            follower = Follower(self._agents, errors=self._errors, on_change=self._qmd.changed)
            self._follower = stack.enter_context(follower)
            self._lines = [Lines(agent, self._on_note) for agent in self._agents] if self._on_note else []
            self._follower.log_modes()
            if self._on_note:
                for line in self._follower.describe():
                    self._on_note(line)
            for agent in self._agents:
                kind, path = "up" if self._on_note else "watch", agent.index_path
                if (lock := hold(path, kind, time.time(), part=FOLLOWER)) is not None:
                    stack.callback(lock.close)
                # Rows may wait from before.
                send(Sweep(agent=agent.agent))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def tick(self) -> None:
        self._follower.tick()
        self._qmd.tick()
        for lines in self._lines:
            lines.tick()
        if not self._is_old and (file := self._settings.file.newer()):
            Log("settings").warning("settings.old", file=file)
            self._is_old = True
        if self._on_note and self._errors.corrupt:
            raise self._errors.corrupt


def up(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    stop: threading.Event,
    on_note: Note,
    more: Sequence[Part] = (),
    liveness: Liveness | None = None,
) -> None:
    """Follow the files of `agents` and do the work in this process until `stop` is set.

    `more`: further parts. A damaged index is moved aside and built again. Raises what keeps it from starting.
    """
    while not stop.is_set():
        before = {agent.index_path: file_id(agent.index_path) for agent in agents}
        try:
            for agent in agents:
                choice = prepare(agent, is_asked=False).choice
                reason = f" ({choice.reason})" if choice.reason else ""
                provider = f"{choice.provider} {choice.model}".strip()
                on_note(f"memline: agent {agent.agent} embeds with {provider}{reason}")
            workers = InProcessWorkers(settings, queues=INDEXING, long_lived=True)
            run([workers, Following(settings, agents, on_note=on_note), *more], stop, liveness=liveness)
        except IndexCorrupt as error:
            damaged = next((each for each in agents if str(each.index_path) in error.message), None)
            if damaged is None:
                raise
            path = damaged.index_path
            # A file that was not there before is the one this process made.
            aside = move_aside(path, SystemClock().now(), before[path] or file_id(path))
            if aside:
                rescue(damaged, aside)
            then = f"it was moved to {aside} and" if aside else "it"
            on_note(f"{error.message}; {then} is built again from the files.")
