"""Hold what the actors of this process share: settings, open indexes, and what else stays open until its end.

The process that starts the workers sets it: `workers.lifecycle`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import Protocol, TypeVar, cast

from dramatiq.brokers.stub import StubBroker

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose, choose_fallback
from memline.shared.errors import QueueError
from memline.shared.index.accounts import AccountFile
from memline.shared.index.hold import Hold, hold
from memline.shared.index_writer import IndexWriter
from memline.shared.logs import Log
from memline.shared.queue.broker import send
from memline.shared.queue.messages import MessageRefused, Sweep
from memline.shared.queue.routes import QUEUES
from memline.shared.scheduling import model_change
from memline.shared.scheduling.limits import Limits

#: Requests in flight per embed thread. One is being answered, the other lies in the worker so that its thread
#: never waits. More would only hide work in the queue, where a live edit stands behind it.
PER_THREAD = 2

#: Seconds between two deep sweeps, and between two looks at what is due.
SWEEP_EVERY_S = 5.0
LOOK_EVERY_S = 0.05


class Closable(Protocol):
    """Something that is closed at the end of the process."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class SweepTimer(threading.Thread):
    """Sends the sweeps that are due, until the process is told to stop.

    A deep sweep is followed by the next one. It is the safety net for everything that can be lost on the way:
    a lost message costs one period.
    """

    def __init__(self, stopping: threading.Event) -> None:
        super().__init__(name="sweep-timer", daemon=True)
        self._stopping = stopping
        #: (agent, whether deeply) -> when that is due (monotonic seconds). The store worker's thread adds.
        self._due: dict[tuple[str, bool], float] = {}

    def schedule(self, agent: str, after_s: float, *, deep: bool = False) -> None:
        """Sweep this agent in `after_s` seconds at the latest."""
        due = time.monotonic() + after_s
        self._due[agent, deep] = min(due, self._due.get((agent, deep), due))

    def run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            now = time.monotonic()
            for agent, deep in [key for key, due in self._due.copy().items() if due <= now]:
                del self._due[agent, deep]
                if deep:
                    self.schedule(agent, SWEEP_EVERY_S, deep=True)
                try:
                    send(Sweep(agent=agent, deep=deep))
                except QueueError as error:
                    # Redis has been away for longer than a sender waits. The next deep sweep makes up for it.
                    Log("sweep").error("sweep.not_sent", agent=agent, error=error.message)


class Requests:
    """What the dispatcher and the workers ask of the queues: here those in the memory of one process."""

    def __init__(self, broker: StubBroker | None = None) -> None:
        self._broker = broker

    def credits(self) -> int:
        """Count the requests that may be in flight at this moment."""
        return PER_THREAD * QUEUES["embed"]

    def store_depth(self) -> int:
        """Count the messages that wait for the store worker. Any thread may ask."""
        return self._broker.queues["store"].qsize() if self._broker else 0

    def begin(self, lease: str, for_s: float) -> bool:
        """Note that a request is sent, whose lease lasts so many seconds; False when one was sent before.

        Any thread may do so. Raises QueueError while Redis is away: nothing is sent that cannot be noted.
        """
        return True


class Context:
    """Holds the state of one worker process; `writer` is for the single thread of the store worker."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        requests: Requests | None = None,
        stopping: threading.Event | None = None,
        kind: str = "up",
    ) -> None:
        """Without `limits` and `requests` those of one process. `kind`: as of `shared.index.hold`."""
        self.settings = settings
        self.clock = clock or SystemClock()
        self._account_file = AccountFile(settings.account_path)
        self.limits = limits or Limits(self._account_file, self.clock)
        self.requests = requests or Requests()
        #: Set when the process is told to stop: what waits then waits no longer.
        self.stopping = stopping or threading.Event()
        self.sweep_timer = SweepTimer(self.stopping)
        self._kind = kind
        self._lock = threading.RLock()
        self._writers: dict[str, IndexWriter] = {}
        self._holds: dict[str, Hold] = {}
        self._choices: dict[str, tuple[Choice, Choice | None]] = {}
        self._open: dict[Hashable, Closable] = {}

    def agent(self, agent: str, *, index: str = "", needs_workspace: bool = True) -> AgentSettings:
        """Give the settings of an agent.

        Raises MessageRefused for one this process does not know, and when `index`, the file name of the index
        that is meant, is not that of the agent's workspace here. What only calls the provider needs no
        workspace: an embed worker has none.
        """
        settings = self.settings.agents.get(agent)
        if settings is None:
            raise MessageRefused(
                f"a message names the agent {agent!r}, which is not configured here"
                f" (known: {', '.join(sorted(self.settings.agents))})",
                hint="memline config show",
            )
        if needs_workspace:
            settings.with_workspace()
        if index and index != settings.index_path.name:
            raise MessageRefused(
                f"a message is about the index {index}; for the agent {agent!r} this process works on"
                f" {settings.index_path.name}, of {settings.workspace}",
                hint="give all processes of the fleet the same workspace, or each fleet a queue.name",
            )
        return settings

    def choices(self, agent: str) -> tuple[Choice, Choice | None]:
        """Give the primary provider of an agent, and its fallback; None when there is none that can work."""
        with self._lock:
            if agent not in self._choices:
                settings = self.agent(agent, needs_workspace=False)
                primary = choose(settings)
                self._choices[agent] = primary, choose_fallback(settings, primary)
            return self._choices[agent]

    def writer(self, agent: str) -> IndexWriter:
        """Give the open index of an agent, made ready for work the first time."""
        if agent in self._writers and self._writers[agent].is_replaced:
            # What is written to the old file would be lost.
            self._writers.pop(agent).close()
        if agent not in self._writers:
            writer = IndexWriter.of(self.agent(agent), clock=self.clock)
            with writer.session() as (_, now):
                model_change.start(writer.accounts, *self.choices(agent), now)
            self._writers[agent] = writer
            self.sweep_timer.schedule(agent, SWEEP_EVERY_S, deep=True)
        return self._writers[agent]

    def dispatches(self, agent: str) -> bool:
        """Tell whether this process dispatches the index of an agent; it takes the lock when it is free.

        Without Redis, requests of the process that had it before have ended with that process.
        """
        if agent not in self._holds:
            taken = hold(self.agent(agent).index_path, self._kind, self.clock.now())
            if taken is None:
                return False
            self._holds[agent] = taken
            if not self.settings.queue:
                self.writer(agent).end_leases()
            self.writer(agent).note_minute()
        return True

    def keep(self, key: Hashable, build: Callable[[], C]) -> C:
        """Build something once and keep it open until the end of the process."""
        with self._lock:
            if key not in self._open:
                self._open[key] = build()
            return cast(C, self._open[key])

    def close(self) -> None:
        """Close what is open, the locks last; the workers have stopped before."""
        with self._lock, ExitStack() as stack:
            # All are closed, also when one cannot be.
            items = (self._account_file, *self._open.values(), *self._writers.values())
            for each in (*self._holds.values(), *items):
                stack.callback(each.close)
            for kept in (self._holds, self._open, self._writers):
                kept.clear()


_current: Context | None = None


def use(context: Context | None) -> None:
    """Make `context` the one of this process."""
    global _current
    _current = context


def current() -> Context:
    """Give the context of this process. Raises QueueError when none was set."""
    if _current is None:
        raise QueueError("this process has no workers' context", hint="start workers with: memline worker")
    return _current
