"""Follow files until the process is told to stop: with workers in this process, or for those of a fleet."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memline.producers.bridges.qmd.updates import QmdUpdates
from memline.producers.runs.in_process import INDEXING, InProcessWorkers
from memline.producers.runs.prepare import prepare
from memline.producers.watching.flush_sessions import FlushSessions
from memline.producers.watching.follow import TICK_S, Follower
from memline.producers.watching.loop_errors import LoopErrors
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.config_file import for_owner
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexCorrupt, IndexFault
from memline.shared.findings.check import check
from memline.shared.findings.facts import Facts
from memline.shared.index import driver
from memline.shared.index.chunks import count
from memline.shared.index.driver import file_id
from memline.shared.index.repair import move_aside
from memline.shared.index_writer import rescue
from memline.shared.liveness import Liveness
from memline.shared.logs import Log
from memline.shared.queue import broker
from memline.shared.sources.outcomes import INDEXED
from memline.shared.words import counted, span

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Files that get a line each at a time; of more the number is told, when all are done.
MOST_LINES = 10

#: Seconds after which a file is told of whose texts still wait: for a provider, or a job before them.
PATIENCE_S = 10.0

#: Seconds for which a file may be stored later than one that was read after it.
LATE_S = 60.0

#: Seconds without another file after which a large change is over.
QUIET_S = 2.0

#: Seconds between two looks at what is wrong.
TROUBLE_EVERY_S = 5.0

_CHANGED = "SELECT path, observed_ns, outcome FROM files WHERE observed_ns > ? ORDER BY observed_ns, path"

#: Chunks of a file, those whose vector is there, and those whose vector is still to come.
_COUNTS = """
SELECT count(*),
    total(EXISTS (SELECT 1 FROM vectors WHERE identity_id IN (SELECT id FROM identities)
                  AND text_hash = chunks.text_hash AND state = 'ready')),
    total(EXISTS (SELECT 1 FROM vectors WHERE identity_id IN (SELECT id FROM identities)
                  AND text_hash = chunks.text_hash AND state IN ('wanted', 'leased')))
FROM chunks JOIN files ON files.id = chunks.file_id WHERE path = ?
"""


class ChangeLines:
    """Tells of the changes of one agent's files, and of what is wrong; `tick` is called again and again."""

    def __init__(
        self, settings: AgentSettings, on_note: Callable[[str], None], *, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._on_note = on_note
        self._clock = clock or SystemClock()
        self._since_ns = self._clock.now_ns()
        #: Files to be told of, with the time of their read and what became of them.
        self._open: dict[str, tuple[int, str]] = {}
        #: Files that were told of lately: workers store them in another order than they read them.
        self._told: dict[str, int] = {}
        #: Files of a large change, when it began, and when the last of them came.
        self._many, self._began_s, self._last_s = 0, 0.0, 0.0
        self._seen: tuple[object, ...] = ()
        #: When to look again for what is wrong, and the code of what was told last.
        self._trouble_due_s, self._trouble = time.monotonic() + TROUBLE_EVERY_S, ""

    def tick(self) -> None:
        """Tell what is done; opens the index only when it was written, or something is to be told."""
        seen = self._written()
        is_due = time.monotonic() >= self._trouble_due_s
        if seen == self._seen and not self._open and not self._many and not is_due:
            return
        self._seen = seen
        # The part that failed says so; this only looks.
        with suppress(IndexFault), driver.reading_if_any(self._settings.index_path) as reader:
            if reader is not None:
                if is_due:
                    self._tell_trouble(reader)
                self._look(reader)

    def _tell_trouble(self, reader: Connection) -> None:
        """Say the most urgent problem or warning, once; its words may change every second."""
        self._trouble_due_s = time.monotonic() + TROUBLE_EVERY_S
        choice, now = choose(self._settings), self._clock.now()
        with closing(Facts(self._settings, choice, reader, now=now)) as facts:
            first = next((each for each in check(facts) if each.is_trouble), None)
        if first is not None and first.code != self._trouble:
            advice = f" (try: {first.action})" if first.action else ""
            self._on_note(f"memline: agent {self._settings.agent}: {first.what}{advice}")
        self._trouble = first.code if first is not None else ""

    def _look(self, reader: Connection) -> None:
        now_ns = self._clock.now_ns()
        self._since_ns = max(self._since_ns, now_ns - int(LATE_S * 1e9))
        self._told = {path: at for path, at in self._told.items() if at > self._since_ns}
        for path, observed_ns, outcome in reader.execute(_CHANGED, (self._since_ns,)):
            if self._told.get(path) != observed_ns:
                self._told[path] = observed_ns
                self._open[path] = (observed_ns, outcome)
        if self._many or len(self._open) > MOST_LINES:
            self._tell_of_many(reader)
            return
        for path, (observed_ns, outcome) in list(self._open.items()):
            chunks, ready, waiting = map(int, reader.execute(_COUNTS, (path,)).fetchone())
            if waiting and now_ns - observed_ns < PATIENCE_S * 1e9:
                continue
            del self._open[path]
            words = [counted(chunks, "chunk")] if outcome == INDEXED else [outcome.replace("_", " ")]
            words += [f"{ready} embedded"] * bool(ready) + [counted(waiting, "text", "wait")] * bool(waiting)
            took_ms = max(now_ns - observed_ns, 0) / 1e6
            self._on_note(f"memline: {path}: {', '.join(words)}, {took_ms:.0f} ms")

    def _tell_of_many(self, reader: Connection) -> None:
        """Count the files, and tell once no more come. Their vectors may take hours: none is waited for."""
        now_s = time.monotonic()
        if self._open:
            self._began_s = self._began_s if self._many else now_s
            self._many += len(self._open)
            self._last_s = now_s
            self._open.clear()
        elif now_s - self._last_s >= QUIET_S:
            left = "SELECT count(*) FROM vectors WHERE active = 1 AND state IN ('wanted', 'leased')"
            waiting = driver.scalar(reader, left)
            took = span(self._last_s - self._began_s)
            words = f"{counted(self._many, 'file')} read in {took}; {counted(count(reader), 'chunk')} in all"
            rest = f", {counted(waiting, 'text', 'wait')} to be embedded" if waiting else ""
            self._on_note(f"memline: {words}{rest}")
            self._many = 0

    def _written(self) -> tuple[object, ...]:
        """Return what differs once the index was written: SQLite writes its log first."""
        found = []
        for ending in ("", "-wal"):
            with suppress(OSError):
                status = os.stat(f"{self._settings.index_path}{ending}")
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)


class SoleFollower(ExitStack):
    """Sees that one process alone follows the files of an agent: the next waits until it ends.

        <index>.follower    locked by the process that follows; its text is the process's id

    Two that follow would read each file twice. The system lets go of the lock when a process is killed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: set[Path] = set()
        self._others: list[AgentSettings] = []

    def shared(self, agents: Sequence[AgentSettings]) -> tuple[list[AgentSettings], list[str]]:
        """Return the agents that this process follows from now on, and a line for each of the others."""
        self._others = [agent for agent in agents if not self._is_ours(_lock_of(agent))]
        lines = [
            f"memline: agent {agent.agent} is followed by {_holder(_lock_of(agent))} already; this one takes"
            " its place when it ends"
            for agent in self._others
        ]
        return [agent for agent in agents if agent not in self._others], lines

    @property
    def may_follow_more(self) -> bool:
        """Whether the process that followed one of the others has ended: then ask `shared` again."""
        return any(self._is_ours(_lock_of(agent)) for agent in self._others)

    def _is_ours(self, path: Path) -> bool:
        if path in self._held:
            return True
        # A home that cannot be written has no locks: the process works all the same.
        with suppress(OSError), ExitStack() as stack:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = stack.enter_context(open(path, "a", encoding="ascii", opener=for_owner))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            self.push(stack.pop_all())
        self._held.add(path)
        return True


def _lock_of(agent: AgentSettings) -> Path:
    return Path(f"{agent.index_path}.follower")


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError):
        return f"process {int(path.read_text('ascii'))}"
    return "another process"


Note = Callable[[str], None]


def log_if_old(settings: Settings, is_logged: bool) -> bool:
    """Log once that the configuration was changed since it was read; tells whether that is logged."""
    if not is_logged and (file := settings.file.newer()):
        Log("settings").warning("settings.old", file=file)
        return True
    return is_logged


def watch(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    stop: threading.Event,
    liveness: Liveness | None = None,
) -> None:
    """Follow the files of `agents` and put changes on the queue until `stop` is set.

    Raises QueueError when the queue cannot be used at the start.
    """
    broker.on_redis(settings.queue.address)
    errors, liveness, is_old = LoopErrors(), liveness or Liveness(), False
    with SoleFollower() as sole:
        while not stop.is_set():
            ours, others = sole.shared(agents)
            with (
                QmdUpdates(ours) as qmd,
                FlushSessions(ours),
                Follower(ours, errors=errors, on_change=qmd.changed) as follow,
            ):
                follow.log_modes()
                for words in others:
                    Log("follow").warning("files.left_to_another", words=words)
                liveness.ready()
                while not stop.wait(TICK_S) and not sole.may_follow_more:
                    liveness.alive()
                    follow.tick()
                    qmd.tick()
                    is_old = log_if_old(settings, is_old)
    liveness.stopping()


def run(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    stop: threading.Event,
    on_note: Note,
    liveness: Liveness | None = None,
) -> None:
    """Follow the files of `agents` and do the work in this process until `stop` is set.

    A damaged index is moved aside and built again. Raises what keeps it from starting.
    """
    while not stop.is_set():
        found = {agent.index_path: file_id(agent.index_path) for agent in agents}
        try:
            return _run(settings, agents, stop, on_note, liveness or Liveness())
        except IndexCorrupt as error:
            damaged = next((each for each in agents if str(each.index_path) in error.message), None)
            if damaged is None:
                raise
            path = damaged.index_path
            # A file that was not there before is the one this process made.
            aside = move_aside(path, SystemClock().now(), found[path] or file_id(path))
            if aside:
                rescue(damaged, aside)
            then = f"it was moved to {aside} and" if aside else "it"
            on_note(f"{error.message}; {then} is built again from the files.")


def _run(
    settings: Settings,
    agents: Sequence[AgentSettings],
    stop: threading.Event,
    on_note: Note,
    liveness: Liveness,
) -> None:
    log, errors, logged, is_old = Log("up"), LoopErrors(), "", False
    for agent in agents:
        choice = prepare(agent, is_asked=False).choice
        reason = f" ({choice.reason})" if choice.reason else ""
        provider = f"{choice.provider} {choice.model}".strip()
        on_note(f"memline: agent {agent.agent} embeds with {provider}{reason}")
    with (
        InProcessWorkers(settings, queues=INDEXING, long_lived=True) as workers,
        SoleFollower() as sole,
    ):
        while not stop.is_set():
            ours, others = sole.shared(agents)
            with (
                QmdUpdates(ours) as qmd,
                FlushSessions(ours),
                Follower(ours, errors=errors, on_change=qmd.changed) as follow,
            ):
                for line in (*follow.describe(), *others):
                    on_note(line)
                for agent in ours:
                    workers.wake(agent.agent)
                told = [ChangeLines(agent, on_note) for agent in ours]
                liveness.ready()
                while not stop.wait(TICK_S) and not sole.may_follow_more:
                    liveness.alive()
                    follow.tick()
                    qmd.tick()
                    is_old = log_if_old(settings, is_old)
                    for each in told:
                        each.tick()
                    fault = errors.corrupt or workers.fault()
                    if isinstance(fault, IndexCorrupt):
                        raise fault
                    if fault is not None and str(fault) != logged:
                        logged = str(fault)
                        log.error("work.failed", error=logged, hint=getattr(fault, "hint", ""))
        liveness.stopping()
