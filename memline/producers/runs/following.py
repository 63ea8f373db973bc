"""Follow files until the process is told to stop: with workers in this process, or for those of a fleet."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from memline.producers.bridges.qmd.updates import QmdUpdates
from memline.producers.runs.in_process import InProcessWorkers
from memline.producers.runs.parts import Part, run
from memline.producers.runs.prepare import build_again, prepare
from memline.producers.watching.flush_sessions import FlushSessions
from memline.producers.watching.follow import Follower
from memline.shared.clock import SystemClock
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexCorrupt, IndexFault
from memline.shared.findings.check import check
from memline.shared.findings.facts import Facts
from memline.shared.index import driver
from memline.shared.index.driver import file_id
from memline.shared.index.hold import FOLLOWER, hold
from memline.shared.index.rows import FileRow
from memline.shared.liveness import Liveness
from memline.shared.logs import Log
from memline.shared.queue.broker import send
from memline.shared.queue.messages import Sweep
from memline.shared.sources.outcomes import INDEXED
from memline.shared.words import counted

Note = Callable[[str], None]

#: Seconds between two looks at what is wrong.
TROUBLE_EVERY_S = 5.0

#: Files that get a line each at a time; more are counted.
MOST_LINES = 10


class Lines:
    """Says what was stored of files, and what is wrong with their indexes; for a terminal."""

    def __init__(self, agents: Sequence[AgentSettings], on_note: Note) -> None:
        self._agents = agents
        self.on_note = on_note
        #: What was stored since the last tick. The thread of the store worker adds to it.
        self._stored: deque[str] = deque()
        self._look_at = time.monotonic() + TROUBLE_EVERY_S
        #: Agent -> code of what was said to be wrong with it last.
        self._trouble: dict[str, str] = {}

    def stored(self, row: FileRow) -> None:
        """Note that a file was stored."""
        is_split = row.outcome == INDEXED
        words = counted(len(row.chunks or ()), "chunk") if is_split else row.outcome.replace("_", " ")
        self._stored.append(f"memline: {row.path}: {words}")

    def tick(self) -> None:
        """Say what is new."""
        lines = [self._stored.popleft() for _ in range(len(self._stored))]
        if len(lines) > MOST_LINES:
            lines = [f"memline: {counted(len(lines), 'file')} read"]
        for line in lines:
            self.on_note(line)
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + TROUBLE_EVERY_S
            for settings in self._agents:
                # The part that failed says so; this only looks.
                with suppress(IndexFault):
                    self._say_trouble(settings)

    def _say_trouble(self, settings: AgentSettings) -> None:
        """Say the most urgent problem or warning, once; its words may change every second."""
        with driver.reading_if_any(settings.index_path) as reader:
            facts = Facts(settings, choose(settings), reader, now=time.time())
            first = next((each for each in check(facts) if each.is_trouble), None)
        if first is not None and first.code != self._trouble.get(settings.agent):
            advice = f" (try: {first.action})" if first.action else ""
            self.on_note(f"memline: agent {settings.agent}: {first.what}{advice}")
        self._trouble[settings.agent] = first.code if first is not None else ""


class Following:
    """Follows the files of agents and puts changes on the queue: a part of a process (`runs.parts`).

    The broker of this process is set before.
    """

    def __init__(self, settings: Settings, agents: Sequence[AgentSettings], *, lines: Lines | None = None):
        """With `lines` it says what becomes of the files."""
        self._settings = settings
        self._agents = agents
        self._lines = lines
        self._is_old = False

    def __enter__(self) -> Following:
        with ExitStack() as stack:
            self._qmd = stack.enter_context(QmdUpdates(self._agents))
            stack.enter_context(FlushSessions(self._agents))
            follower = Follower(self._agents, on_change=self._qmd.changed)
            self._follower = stack.enter_context(follower)
            for line in self._follower.describe():
                if self._lines:
                    self._lines.on_note(line)
            for agent in self._agents:
                kind, path = "up" if self._lines else "watch", agent.index_path
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
        if self._lines:
            self._lines.tick()
        if not self._is_old and (file := self._settings.file.newer()):
            Log("settings").warning("settings.old", file=file)
            self._is_old = True
        if self._lines and self._follower.corrupt:
            # Moved aside and built again by `up`.
            raise self._follower.corrupt


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
            lines = Lines(agents, on_note)
            workers = InProcessWorkers(settings, long_lived=True, on_stored=lines.stored)
            run([workers, Following(settings, agents, lines=lines), *more], stop, liveness=liveness)
        except IndexCorrupt as error:
            damaged = next((each for each in agents if str(each.index_path) in error.message), None)
            if damaged is None:
                raise
            # A file that was not there before is the one this process made.
            path = damaged.index_path
            on_note(build_again(damaged, error, before[path] or file_id(path), SystemClock().now()))
