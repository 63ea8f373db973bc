"""Follow the state of all agents and of the fleet for the pages: one reader, however many browsers watch.

While a browser watches, the state is read once a second, or less often where reading takes long; what an
agent's rows say is read again only when its index or the accounts changed on disk. While `memline serve`
runs, a point is kept every 15 seconds for the charts (series.py).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from memline.producers.reports.fleet_state import agent_state, eta_s, spending
from memline.producers.runs.supervisor import commands
from memline.producers.web.rendering import age, money, number
from memline.producers.web.series import Point, Series
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.request import RATE_LIMIT
from memline.shared.errors import MemlineError, QueueError
from memline.shared.index.accounts import AccountFile
from memline.shared.logs import Log
from memline.shared.scheduling import call_times
from memline.shared.sync.plan import plan_of
from memline.shared.values import value

if TYPE_CHECKING:
    from memline.shared.queue.depth import Fleet

#: Seconds between two reads while a browser watches, and between two points of the charts.
READ_EVERY_S = 1.0
SAMPLE_EVERY_S = 15.0

#: Reading takes at most this part of the time, so that a large home costs a watcher no more than a small one.
READ_SHARE = 1 / 50

#: The same for looking at the files of a workspace: 0.1 s for 5,000 files.
SCAN_SHARE = 1 / 200

#: Seconds after which rows are read again though no file changed: rates fall with time alone.
STALE_S = 15.0

#: Browsers that may watch at a time.
MAX_WATCHERS = 64


@value
class AgentFigures:
    """What is read of one agent."""

    agent: str
    #: As `fleet_state.agent_state` has it; None without an index, or when it cannot be read.
    state: dict[str, Any] | None
    #: Files that are newer than the index, or wait for a job.
    files_behind: int
    #: Why the index cannot be read; empty when it can.
    error: str = ""

    def count(self, name: str) -> int:
        return self.state["vectors"][name] if self.state else 0

    @property
    def pending(self) -> int:
        return self.count("wanted") + self.count("leased")

    @property
    def rate(self) -> float:
        return self.state["vectorsPerSecond"] if self.state else 0.0


@value
class Snapshot:
    """The state at one moment; for `only`, an agent's id, of this agent alone, when it is empty of all."""

    #: Seconds since the epoch.
    at: float
    agents: Mapping[str, AgentFigures]
    #: Queues and workers; None without Redis, or when it cannot be reached.
    fleet: Fleet | None
    #: Why Redis cannot be reached; empty when it can.
    fleet_error: str
    #: Roles that the configuration needs.
    expected: tuple[str, ...]
    spending: dict[str, Any]
    #: Answers 429 of all accounts in the last day.
    limited: int
    has_queue: bool

    def of(self, only: str) -> list[AgentFigures]:
        return [each for each in self.agents.values() if only in ("", each.agent)]

    def point(self, only: str, limited: int) -> Point:
        """Return the point of the charts for this moment; `limited`: 429s since the last one."""
        agents = self.of(only)
        return Point(
            backlog=sum(each.pending for each in agents),
            rate=sum(each.rate for each in agents),
            oldest_s=0.0 if only or not self.fleet else max(queue.oldest_s for queue in self.fleet.queues),
            limited=limited,
        )

    def figures(self, only: str) -> dict[str, str]:
        """Return the numbers that pages show live, as they are shown."""
        agents = self.of(only)
        counts = {name: sum(each.count(name) for each in agents) for name in ("wanted", "leased", "failed")}
        rate = sum(each.rate for each in agents)
        eta = eta_s(counts, rate)
        figures = {
            "files_behind": number(sum(each.files_behind for each in agents)),
            "wanted": number(counts["wanted"] + counts["leased"]),
            "rate": number(rate),
            "eta": "–" if eta is None else age(eta),
            "pace": _pace(sum(each.pending for each in agents), rate, eta),
            "failed": number(counts["failed"]),
        }
        if only:
            return figures
        figures["spent"] = money(self.spending["today"]["cost"])
        if self.has_queue:
            figures |= self._fleet_figures()
        return figures

    def _fleet_figures(self) -> dict[str, str]:
        if self.fleet is None:
            return dict.fromkeys(("oldest", "dead", "workers"), "–") | {
                "workers_expected": str(len(self.expected))
            }
        serving = {queue for worker in self.fleet.workers for queue in worker.queues}
        return {
            "oldest": age(max(queue.oldest_s for queue in self.fleet.queues)),
            "dead": number(sum(queue.dead for queue in self.fleet.queues)),
            "workers": str(len(serving & set(self.expected))),
            "workers_expected": str(len(self.expected)),
        }

    def topics(self, only: str) -> dict[str, object]:
        """Return what each topic of the pages depends on: a page asks again for what changed."""
        agents = self.of(only)
        states = [each.state for each in agents]
        topics: dict[str, object] = {
            "agents": [(each.agent, each.error, each.files_behind, each.state) for each in agents],
            "jobs": [state["jobs"] for state in states if state],
        }
        if not only:
            topics["providers"] = [state["providers"] for state in states if state]
            topics["spending"] = self.spending
            topics["queues"] = self.fleet.queues if self.fleet else self.fleet_error
            # Without the times, which change with every heartbeat.
            workers = self.fleet.workers if self.fleet else ()
            topics["workers"] = [(each.id, each.threads_of, round(each.busy_s)) for each in workers]
        return topics


class LiveFigures:
    """Reads the state, keeps the points of the charts, and tells those who watch."""

    def __init__(
        self, settings: Settings, agents: Sequence[AgentSettings], *, with_series: Sequence[str] = ()
    ) -> None:
        """`with_series`: the agents that have charts of their own, beside those of all together."""
        self._settings = settings
        self._agents = tuple(agents)
        self._expected = tuple(role for role in commands(list(agents)) if role != "watch")
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._read_at = 0.0
        self._cost_s = 0.0
        #: Agent -> what its files were on disk, when it was read (monotonic), and what it said.
        self._states: dict[str, tuple[object, float, dict[str, Any] | None]] = {}
        #: Agent -> when its workspace may be looked at again (monotonic), and the files behind.
        self._scans: dict[str, tuple[float, int]] = {}
        self.series = {name: Series() for name in ("", *with_series)}
        #: `limited` of the last sample.
        self._limited: int | None = None
        self._watchers = 0
        self._changed = anyio.Event()
        self._woken = anyio.Event()
        self._log = Log("web")

    def read(self, max_age_s: float = READ_EVERY_S) -> Snapshot:
        """Return the state, read anew when the last one is older; blocks for 2 ms and up."""
        with self._lock:
            if self._snapshot is None or time.monotonic() - self._read_at > max_age_s:
                # Of this thread: on a busy machine a read takes long and costs no more.
                began_s = time.thread_time()
                self._snapshot = self._read()
                self._read_at = time.monotonic()
                self._cost_s = time.thread_time() - began_s
            return self._snapshot

    async def run(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Read while there are watchers, and for the charts, until cancelled."""
        next_sample = 0.0
        while True:
            is_due = time.monotonic() >= next_sample
            if is_stopping():
                self._tell()
            elif is_due or self._watchers:
                try:
                    snapshot = await anyio.to_thread.run_sync(partial(self.read, READ_EVERY_S / 2))
                except Exception as error:  # A reader that ends would leave all pages standing still.
                    self._log.exception("live.failed", kind=type(error).__name__)
                else:
                    if is_due:
                        self._sample(snapshot)
                    self._tell()
                if is_due:
                    next_sample = time.monotonic() + SAMPLE_EVERY_S
            pause_s = max(0.1, next_sample - time.monotonic())
            if self._watchers:
                pause_s = min(pause_s, max(READ_EVERY_S, self._cost_s / READ_SHARE))
                await anyio.sleep(pause_s)
                continue
            with anyio.move_on_after(pause_s):
                await self._woken.wait()

    def _sample(self, snapshot: Snapshot) -> None:
        """Keep the points of this moment for the charts."""
        before, self._limited = self._limited, snapshot.limited
        # The counts are of a day: those of its first hour are forgotten together.
        limited = 0 if before is None else max(0, snapshot.limited - before)
        for only, series in self.series.items():
            series.add(snapshot.at, snapshot.point(only, limited))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Have the state read while this lasts."""
        self._watchers += 1
        self._woken.set()
        self._woken = anyio.Event()
        try:
            yield
        finally:
            self._watchers -= 1

    @property
    def is_full(self) -> bool:
        return self._watchers >= MAX_WATCHERS

    @property
    def latest(self) -> Snapshot | None:
        """The state as it was read last; None before the first time."""
        return self._snapshot

    async def next(self, timeout_s: float) -> float:
        """Wait until the state was read again; return the seconds that this took."""
        began = time.monotonic()
        with anyio.move_on_after(timeout_s):
            await self._changed.wait()
        return time.monotonic() - began

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _read(self) -> Snapshot:
        fleet, fleet_error = None, ""
        if self._settings.queue.url:
            # Imports redis, which is not needed without a queue.
            from memline.shared.queue import depth

            try:
                fleet = depth.read(self._settings.queue.address)
            except QueueError as error:
                fleet_error = error.message
        return Snapshot(
            at=time.time(),
            agents={each.agent: self._agent(each) for each in self._agents},
            fleet=fleet,
            fleet_error=fleet_error,
            expected=self._expected,
            spending=spending(self._settings),
            limited=self._count_limited(),
            has_queue=bool(self._settings.queue.url),
        )

    def _agent(self, settings: AgentSettings) -> AgentFigures:
        try:
            state = self._state(settings)
            behind = self._files_behind(settings)
        except MemlineError as error:
            return AgentFigures(agent=settings.agent, state=None, files_behind=0, error=error.message)
        waiting = state["filesWaiting"] if state else 0
        return AgentFigures(agent=settings.agent, state=state, files_behind=max(behind, waiting))

    def _count_limited(self) -> int:
        with closing(AccountFile(self._settings.account_path)) as file:
            return call_times.count(file, RATE_LIMIT, time.time())

    def _state(self, settings: AgentSettings) -> dict[str, Any] | None:
        now = time.monotonic()
        mark = [
            _mark(f"{path}{end}")
            for path in (settings.index_path, settings.account_path)
            for end in ("", "-wal")
        ]
        known = self._states.get(settings.agent)
        if known is not None and known[0] == mark and now - known[1] < STALE_S:
            return known[2]
        state = agent_state(settings, self._settings.prices)
        self._states[settings.agent] = (mark, now, state)
        return state

    def _files_behind(self, settings: AgentSettings) -> int:
        due, count = self._scans.get(settings.agent, (0.0, 0))
        began = time.monotonic()
        if began >= due and settings.memory.enabled:
            began_s = time.thread_time()
            count = plan_of(settings).changes.count
            cost_s = time.thread_time() - began_s
            self._scans[settings.agent] = (began + max(2.0, cost_s / SCAN_SHARE), count)
        return count


def _pace(pending: int, rate: float, eta: float | None) -> str:
    """Say how fast vectors come, and when all that are wanted are there."""
    if not pending:
        return "all are there"
    return (
        f"{number(rate)} a second, ready in {age(eta)}" if eta is not None else "none came in the last minute"
    )


def _mark(path: str) -> tuple[int, int, int] | None:
    """Return what changes with every commit to a file; None when it is not there."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None
