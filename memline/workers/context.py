"""Hold what the actors of this process share: settings, open indexes, and what else stays open until its end.

The process that starts the workers sets it: `workers.process`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from functools import cache
from typing import Any, TypeVar

import dramatiq

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
from memline.shared.queue.fleet import fleet_at
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

#: Seconds that Redis remembers a request that was begun, beyond its lease.
REMEMBER_S = 60.0

T = TypeVar("T")


class Context:
    """Holds the state of one worker process; `writer` is for the single thread of the store worker."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        client: Any = None,
        stopping: threading.Event | None = None,
        kind: str = "up",
    ) -> None:
        """`limits` and `client` (`shared.queue.redis_client.FleetClient`): None without a fleet.

        `stopping`: set when the process is to stop; what waits then ends. `kind`: as of `shared.index.hold`.
        """
        self.settings = settings
        self.clock = clock or SystemClock()
        self.limits = limits or Limits(AccountFile(settings.account_path), self.clock)
        self.stopping = stopping or threading.Event()
        self._client, self._kind = client, kind
        self._embed_threads = QUEUES["embed"] if client is None else 0
        self._lock = threading.RLock()
        self._writers: dict[str, IndexWriter] = {}
        self._holds: dict[str, Hold] = {}
        #: Agent -> its primary provider, and its fallback; None when there is none that can work.
        self.choices = cache(self._choose)
        self._open: dict[Hashable, Any] = {}
        #: (agent, whether deeply) -> when a sweep is due (monotonic seconds).
        self._sweeps: dict[tuple[str, bool], float] = {}

    def agent(self, agent: str, *, index: str = "") -> AgentSettings:
        """Give the settings of an agent; that of an embed worker may have no workspace.

        Raises MessageRefused for one this process does not know, and when `index`, the file name of the index
        that is meant, is not that of the agent's workspace here.
        """
        settings = self.settings.agents.get(agent)
        if settings is None:
            raise MessageRefused(
                f"a message names the agent {agent!r}, which is not configured here"
                f" (known: {', '.join(sorted(self.settings.agents))})",
                hint="memline config show",
            )
        if index and index != settings.index_path.name:
            raise MessageRefused(
                f"a message is about the index {index}; for the agent {agent!r} this process works on"
                f" {settings.index_path.name}, of {settings.workspace}",
                hint="give all processes of the fleet the same workspace, or each fleet a queue.name",
            )
        return settings

    def _choose(self, agent: str) -> tuple[Choice, Choice | None]:
        primary = choose(settings := self.agent(agent))
        return primary, choose_fallback(settings, primary)

    def writer(self, agent: str) -> IndexWriter:
        """Give the open index of an agent, made ready for work the first time."""
        if agent in self._writers and self._writers[agent].is_replaced:
            # What is written to the old file would be lost.
            self._writers.pop(agent).close()
        if agent not in self._writers:
            writer = IndexWriter.of(self.agent(agent).with_workspace(), clock=self.clock)
            with writer.session() as (_, now):
                model_change.start(writer.accounts, *self.choices(agent), now)
            self._writers[agent] = writer
            self.schedule(agent, SWEEP_EVERY_S, deep=True)
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

    def keep(self, key: Hashable, build: Callable[[], T]) -> T:
        """Build something that can be closed once, and keep it open until the end of the process."""
        with self._lock:
            if key not in self._open:
                self._open[key] = build()
            kept: T = self._open[key]
            return kept

    def close(self) -> None:
        """Close what is open, the locks last; the workers have stopped before."""
        with self._lock, ExitStack() as stack:
            # All are closed, also when one cannot be.
            for each in (*self._holds.values(), self.limits, *self._open.values(), *self._writers.values()):
                stack.callback(each.close)
            for kept in (self._holds, self._open, self._writers):
                kept.clear()

    def credits(self) -> int:
        """Count the requests that may be in flight at this moment.

        While Redis is away, as many as before; while no embed worker is alive, none. Else each deadline would
        lease the same texts once more, and count them.
        """
        if self._client is not None and (fleet := fleet_at(self.settings.queue)).error is None:
            self._embed_threads = sum(each.threads_of.get("embed", 0) for each in fleet.workers)
        return PER_THREAD * self._embed_threads

    def store_depth(self) -> int:
        """Count the messages that wait for the store worker. Raises QueueError."""
        if self._client is not None:
            return int(self._client.llen(self._client.key("store")))
        broker: Any = dramatiq.get_broker()
        return int(broker.queues["store"].qsize())

    def begin(self, lease: str, for_s: float) -> bool:
        """Note that a request is sent, whose lease lasts so many seconds; False when one was sent before.

        Raises QueueError while Redis is away: nothing is sent that cannot be noted.
        """
        if self._client is None:
            return True
        seconds = max(1, int(for_s + REMEMBER_S))
        return bool(self._client.set(self._client.key(f"begun:{lease}"), 1, nx=True, ex=seconds))

    def schedule(self, agent: str, after_s: float, *, deep: bool = False) -> None:
        """Sweep this agent in `after_s` seconds at the latest."""
        due = time.monotonic() + after_s
        self._sweeps[agent, deep] = min(due, self._sweeps.get((agent, deep), due))

    def send_sweeps(self) -> None:
        """Send the sweeps that are due, until the process is told to stop.

        A deep sweep is followed by the next one. It is the safety net for everything that can be lost on the
        way: a lost message costs one period.
        """
        while not self.stopping.wait(LOOK_EVERY_S):
            now = time.monotonic()
            for agent, deep in [key for key, due in self._sweeps.copy().items() if due <= now]:
                del self._sweeps[agent, deep]
                if deep:
                    self.schedule(agent, SWEEP_EVERY_S, deep=True)
                try:
                    send(Sweep(agent=agent, deep=deep))
                except QueueError as error:
                    # Redis has been away for longer than a sender waits. The next deep sweep makes up for it.
                    Log("sweep").error("sweep.not_sent", agent=agent, error=error.message)


_current: Context | None = None


def use(context: Context | None) -> None:
    """Make `context` the one of this process."""
    global _current
    _current = context


def current() -> Context:
    """Give the context of this process, in which workers run."""
    assert _current is not None
    return _current
