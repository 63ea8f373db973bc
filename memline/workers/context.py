"""Hold what the actors of this process share: settings, open indexes, and what else stays open until its end.

The process that starts the workers sets it: `workers.lifecycle`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Hashable
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
from memline.shared.index.rows import FileRow
from memline.shared.index_writer import IndexWriter
from memline.shared.logs import Log
from memline.shared.queue.broker import send
from memline.shared.queue.messages import AgentNotConfigured, MessageRefused, Sweep
from memline.shared.queue.routes import QUEUES
from memline.shared.scheduling import model_change
from memline.shared.scheduling.limits import FileLimits, Limits

#: Requests in flight per embed thread. One is being answered, the other lies in the worker so that its thread
#: never waits. More would only hide work in the queue, where a live edit stands behind it.
PER_THREAD = 2

#: Texts in flight at most, over all requests. A text with its vector of 1,536 numbers is about 8 KB, so that
#: this is 64 MB in Redis; when many threads are alive each request is smaller, none of them goes without.
MAX_ROWS_IN_FLIGHT = 8_192

#: Seconds between two deep sweeps.
SWEEP_EVERY_S = 5.0


class Closable(Protocol):
    """Something that is closed at the end of the process."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class SweepTimer:
    """Calls `send_sweep(agent, deep)` when scheduled, and deeply every `every_s` for all watched agents.

    A sweep is the safety net for everything that can be lost on the way: a lost message costs one period.
    """

    def __init__(self, send_sweep: Callable[[str, bool], object], *, every_s: float = SWEEP_EVERY_S) -> None:
        self._send_sweep = send_sweep
        self._every_s = every_s
        self._changed = threading.Condition()
        #: (agent, whether deeply) -> when that is due (monotonic seconds).
        self._due: dict[tuple[str, bool], float] = {}
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="sweep-timer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def watch(self, agent: str) -> None:
        """Sweep this agent regularly from now on."""
        self.schedule(agent, self._every_s, deep=True)

    def schedule(self, agent: str, after_s: float, *, deep: bool = False) -> None:
        """Sweep this agent in `after_s` seconds at the latest."""
        due = time.monotonic() + after_s
        with self._changed:
            if due < self._due.get((agent, deep), math.inf):
                self._due[agent, deep] = due
                self._changed.notify()

    def _next(self) -> tuple[str, bool] | None:
        """Wait for what is due next, and take it; None when the timer was stopped."""
        with self._changed:
            while not self._is_stopped:
                key = min(self._due, key=self._due.__getitem__, default=None)
                wait_s = None if key is None else self._due[key] - time.monotonic()
                if key is not None and wait_s is not None and wait_s <= 0:
                    del self._due[key]
                    return key
                self._changed.wait(wait_s)
        return None

    def _run(self) -> None:
        while (key := self._next()) is not None:
            agent, deep = key
            if deep:
                self.watch(agent)
            try:
                self._send_sweep(agent, deep)
            except QueueError as error:
                # Redis has been away for longer than a sender waits. The next deep sweep makes up for this.
                Log("sweep").error("sweep.not_sent", agent=agent, error=error.message)


class InFlightRequests:
    """What the dispatcher and the workers ask of the queues: here those in the memory of one process."""

    def __init__(self, broker: StubBroker | None = None, *, serves_batches: bool = False) -> None:
        self._broker = broker
        self._serves_batches = serves_batches
        #: The leases whose requests were begun; what is left at the end of the process was not sent.
        self.begun: set[str] = set()

    def credits(self) -> int:
        """Count the requests that may be in flight at this moment."""
        return PER_THREAD * QUEUES["embed"]

    def serves_batches(self) -> bool:
        """Tell whether a batch worker is there."""
        return self._serves_batches

    def store_depth(self) -> int:
        """Count the messages that wait for the store worker. Any thread may ask."""
        return self._broker.queues["store"].qsize() if self._broker else 0

    def begin(self, lease: str, for_s: float) -> bool:
        """Note that a request is sent, whose lease lasts so many seconds; False when one was sent before.

        Any thread may do so. Raises QueueError while Redis is away: nothing is sent that cannot be noted.
        """
        self.begun.add(lease)
        return True


def rows_per_request(max_rows: int, credits: int) -> int:
    """Shrink a provider's cap of rows when so many credits would put too much into Redis."""
    return max(1, min(max_rows, MAX_ROWS_IN_FLIGHT // credits))


class Context:
    """Holds the state of one worker process; `writer` is for the single thread of the store worker."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        in_flight: InFlightRequests | None = None,
        stopping: threading.Event | None = None,
        kind: str = "up",
        on_stored: Callable[[FileRow], None] = lambda _: None,
    ) -> None:
        """Without `limits` and `in_flight` those of one process. `kind`: as of `shared.index.hold`.

        `on_stored` is called with each file whose rows changed.
        """
        self.settings = settings
        self.on_stored = on_stored
        self.clock = clock or SystemClock()
        self._account_file = AccountFile(settings.account_path)
        self.limits = limits or FileLimits(self._account_file, self.clock)
        self.in_flight = in_flight or InFlightRequests()
        #: Set when the process is told to stop: what waits then waits no longer.
        self.stopping = stopping or threading.Event()
        self.sweep_timer = SweepTimer(lambda agent, deep: send(Sweep(agent=agent, deep=deep)))
        self._kind = kind
        self._lock = threading.RLock()
        self._writers: dict[str, IndexWriter] = {}
        self._holds: dict[str, Hold] = {}
        self._choices: dict[str, tuple[Choice, Choice | None]] = {}
        self._open: dict[Hashable, Closable] = {}
        self._is_closed = False

    def agent(self, agent: str, *, index: str = "", needs_workspace: bool = True) -> AgentSettings:
        """Give the settings of an agent.

        Raises AgentNotConfigured for one this process does not know, and MessageRefused when `index`, the
        file name of the index that is meant, is not that of the agent's workspace here. What only calls the
        provider needs no workspace: an embed worker has none.
        """
        agents = self.settings.agents
        try:
            settings = agents.resolve(agent, needs_workspace=needs_workspace)
        except KeyError:
            raise AgentNotConfigured(
                f"a message names the agent {agent!r}, which is not configured here"
                f" (known: {', '.join(sorted(agents))})",
                hint="memline config show",
            ) from None
        if index and index != settings.index_path.name:
            raise MessageRefused(
                f"a message is about the index {index}; for the agent {agent!r} this process works on"
                f" {settings.index_path.name}, of {settings.workspace}",
                hint="give all processes of the fleet the same workspace, or each fleet a queue.name",
            )
        return settings

    def choice(self, agent: str) -> Choice:
        """Give the primary provider of an agent."""
        return self._providers(agent)[0]

    def fallback(self, agent: str) -> Choice | None:
        """Give the fallback of an agent; None when there is none that can work."""
        return self._providers(agent)[1]

    def _providers(self, agent: str) -> tuple[Choice, Choice | None]:
        with self._lock:
            if agent not in self._choices:
                settings = self.agent(agent, needs_workspace=False)
                primary = choose(settings)
                second = choose_fallback(settings, primary)
                self._choices[agent] = primary, second
            return self._choices[agent]

    def writer(self, agent: str) -> IndexWriter:
        """Give the open index of an agent, made ready for work the first time."""
        if agent in self._writers and self._writers[agent].is_replaced:
            # What is written to the old file would be lost.
            self._writers.pop(agent).close()
        if agent not in self._writers:
            writer = IndexWriter.of(self.agent(agent), clock=self.clock)
            with writer.session() as (_, now):
                model_change.start(writer.accounts, self.choice(agent), self.fallback(agent), now)
            self._writers[agent] = writer
            self.sweep_timer.watch(agent)
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
        return True

    def end_unsent(self, begun: Collection[str]) -> None:
        """End the leases that this process has not begun to send: no answer comes, and they cost nothing."""
        for agent, writer in self._writers.items():
            if agent in self._holds:
                writer.end_unsent(begun)

    def keep(self, key: Hashable, build: Callable[[], C]) -> C:
        """Build something once and keep it open until the end of the process.

        A thread that was left behind, and comes after `close`, gets it closed: nothing would close it later.
        """
        with self._lock:
            if self._is_closed:
                item = build()
                item.close()
                return item
            if key not in self._open:
                self._open[key] = build()
            return cast(C, self._open[key])

    def close(self) -> None:
        """Stop the timer and close what is open; the workers have stopped before."""
        self.sweep_timer.stop()
        with self._lock, ExitStack() as stack:
            # All are closed, also when one cannot be; the locks last.
            self._is_closed = True
            for each in self._holds.values():
                stack.callback(each.close)
            for item in (self._account_file, *self._open.values(), *self._writers.values()):
                stack.callback(item.close)
            self._writers.clear()
            self._holds.clear()
            self._open.clear()


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
