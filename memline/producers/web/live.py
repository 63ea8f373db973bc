"""Follow the state of all agents and of the fleet for the pages: one reader, however many browsers watch.

While a browser watches, the state is read once a second, or less often where reading takes long; what an
agent's rows say is read again only when its index or the accounts changed on disk.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from memline.producers.reports.fleet_state import agent_state, spending
from memline.producers.web.snapshot import AgentFigures, Snapshot
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import MemlineError, QueueError
from memline.shared.logs import Log
from memline.shared.queue import depth
from memline.shared.queue.routes import commands
from memline.shared.sync.plan import plan_of
from memline.shared.values import value

#: Seconds between two reads while a browser watches.
READ_EVERY_S = 1.0

#: Reading takes at most this part of the time, so that a large home costs a watcher no more than a small one.
READ_SHARE = 1 / 50

#: The same for looking at the files of all workspaces (0.1 s for 5,000 files), and seconds between two looks.
SCAN_SHARE = 1 / 200
SCAN_EVERY_S = 2.0

#: Seconds after which an agent's rows are read again though its index is the same: while it works (rates fall
#: with time alone, and what is known of its provider changes in another file), and while it rests.
STALE_S, RESTING_S = 15.0, 600.0

#: Seconds of processor time above which an agent's rows are read beside the pages, which show the last ones:
#: counting a million wanted texts takes 0.2 s. Reading them takes at most this part of the time.
SLOW_S, SLOW_SHARE = 0.05, 1 / 20

#: Seconds after which one who waits without a watcher looks whether the server stops.
IDLE_S = 15.0

#: Browsers that may watch at a time.
MAX_WATCHERS = 64


@value
class _KnownState:
    """What the rows of an agent said."""

    #: What its files were on disk before.
    mark: object
    #: Monotonic.
    read_at: float
    #: Processor time.
    cost_s: float
    state: dict[str, Any] | None


class LiveFigures:
    """Reads the state, and tells those who watch."""

    def __init__(self, settings: Settings, agents: Sequence[AgentSettings]) -> None:
        self._settings = settings
        self._agents = tuple(agents)
        self._expected = tuple(role for role in commands(list(agents), with_api=False) if role != "watch")
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._read_at = 0.0
        self._cost_s = 0.0
        self._states: dict[str, _KnownState] = {}
        #: Agents whose rows are being read beside the pages.
        self._reading: set[str] = set()
        #: Agent -> when its workspace was looked at (monotonic), the seconds that took, and the files behind.
        self._scans: dict[str, tuple[float, float, int]] = {}
        #: Seconds that looking at all workspaces takes.
        self._scan_s = 0.0
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
        """Read while there are watchers, until cancelled."""
        while True:
            if is_stopping():
                self._tell()
            elif self._watchers:
                try:
                    await anyio.to_thread.run_sync(partial(self.read, READ_EVERY_S / 2))
                except Exception as error:  # A reader that ends would leave all pages standing still.
                    self._log.exception("live.failed", kind=type(error).__name__)
                else:
                    self._tell()
            if self._watchers:
                await anyio.sleep(max(READ_EVERY_S, self._cost_s / READ_SHARE))
                continue
            with anyio.move_on_after(IDLE_S):
                await self._woken.wait()

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

    def _state(self, settings: AgentSettings) -> dict[str, Any] | None:
        now = time.monotonic()
        mark = [_mark(f"{settings.index_path}{end}") for end in ("", "-wal")]
        known = self._states.get(settings.agent)
        if known is None:
            return self._read_state(settings, mark)
        counts = known.state["vectors"] if known.state else {}
        is_at_work = known.state and (
            known.state["jobs"] or known.state["vectorsPerSecond"] or counts["wanted"] or counts["leased"]
        )
        if known.mark == mark and now - known.read_at < (STALE_S if is_at_work else RESTING_S):
            return known.state
        if known.cost_s <= SLOW_S:
            return self._read_state(settings, mark)
        if now - known.read_at > known.cost_s / SLOW_SHARE and settings.agent not in self._reading:
            self._reading.add(settings.agent)
            threading.Thread(target=self._read_beside, args=(settings, mark), daemon=True).start()
        return known.state

    def _read_state(self, settings: AgentSettings, mark: object) -> dict[str, Any] | None:
        began_s = time.thread_time()
        state = agent_state(settings, self._settings.prices)
        cost_s = time.thread_time() - began_s
        self._states[settings.agent] = _KnownState(
            mark=mark, read_at=time.monotonic(), cost_s=cost_s, state=state
        )
        return state

    def _read_beside(self, settings: AgentSettings, mark: object) -> None:
        try:
            self._read_state(settings, mark)
        except MemlineError:
            # The next page reads it, and shows what is wrong.
            self._states.pop(settings.agent, None)
        finally:
            self._reading.discard(settings.agent)

    def forget(self) -> None:
        """Let the next page read all anew: an action has changed something."""
        self._states.clear()

    def _files_behind(self, settings: AgentSettings) -> int:
        looked_at, cost_s, count = self._scans.get(settings.agent, (-1e9, 0.0, 0))
        began = time.monotonic()
        if settings.memory.enabled and began - looked_at >= max(SCAN_EVERY_S, self._scan_s / SCAN_SHARE):
            began_s = time.thread_time()
            count = plan_of(settings).changes.count
            took_s = time.thread_time() - began_s
            self._scan_s += took_s - cost_s
            self._scans[settings.agent] = (began, took_s, count)
        return count


def _mark(path: str) -> tuple[int, int, int] | None:
    """Return what changes with every commit to a file; None when it is not there."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None
