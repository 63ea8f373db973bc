"""Follow the state of all agents and of the fleet for the pages: one reader, however many browsers watch.

While a browser watches, rows and Redis are looked at once a second; what an agent's rows say is read again
only when its index, the health of its provider, the processes of the home or the fleet changed, or when time
alone may have changed it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from memline.producers.reports.fleet_state import agent_state
from memline.producers.web.file_looks import CHEAP, WAIT_S, FileLooks, Look, guarded, not_examined
from memline.producers.web.snapshot import AgentFigures, Snapshot
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import IndexFault, MemlineError, QueueError
from memline.shared.figures import first_seen
from memline.shared.finding import Finding
from memline.shared.findings import disk
from memline.shared.findings.diagnosis import codes_from, merged, of_agent, of_common, queue_of
from memline.shared.findings.facts import fleet_at
from memline.shared.index.accounts import AccountFile
from memline.shared.logs import Log
from memline.shared.queue.routes import commands
from memline.shared.sampling import index_mark
from memline.shared.scheduling import home_processes
from memline.shared.scheduling.budget import spent
from memline.shared.values import value

#: Seconds between two looks while a browser watches.
READ_EVERY_S = 1.0

#: Looking takes at most this part of the time, so that a large home costs a watcher no more than a small one.
READ_SHARE = 1 / 50

#: Seconds after which an agent's rows are read again though nothing that they depend on changed: while it
#: works or something is wrong (rates fall and waits end with time alone), and while it rests. The part of the
#: time that this may take.
STALE_S, RESTING_S, STALE_SHARE = 5.0, 60.0, 1 / 500

#: Seconds of processor time above which an agent's rows are read beside the pages, which show the last ones:
#: counting a million wanted texts takes 0.2 s. Reading them takes at most this part of the time.
SLOW_S, SLOW_SHARE = 0.05, 1 / 20

#: Seconds between two looks whether the server stops: changed settings are taken then.
STOP_EVERY_S = 0.25

#: Seconds after which one who waits without a watcher looks whether the server stops.
IDLE_S = 15.0

#: Streams at a time; the tabs of a browser share one.
MAX_WATCHERS = 64

_HEALTH = (
    "SELECT account, model, mode, state, reason, action, failures, retry_at, since, probe_at, updated_at"
    " FROM health"
)


@value
class _KnownState:
    """What the rows of an agent said."""

    #: What they depend on, as it was before.
    mark: object
    #: Monotonic.
    read_at: float
    #: Processor time.
    cost_s: float
    state: dict[str, Any] | None
    findings: tuple[Finding, ...]
    #: Why its index cannot be read; empty when it can.
    error: str = ""


class LiveFigures:
    """Reads the state, and tells those who watch."""

    def __init__(
        self, settings: Settings, agents: Sequence[AgentSettings], *, warnings: Sequence[str] = ()
    ) -> None:
        """`warnings`: those of loading the configuration."""
        self._settings = settings
        self._agents = tuple(agents)
        self._warnings = tuple(warnings)
        self._queue = queue_of(settings)
        self._expected: tuple[str, ...] = ()
        self._expected_at = -1e9
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._read_at = 0.0
        self._cost_s = 0.0
        self._states: dict[str, _KnownState] = {}
        #: Agents whose rows are being read beside the pages.
        self._reading: set[str] = set()
        self._looks = FileLooks(settings, agents)
        #: Open as long as this is.
        self._accounts = AccountFile(settings.account_path)
        self._watchers = 0
        self._changed = anyio.Event()
        self._woken = anyio.Event()
        self._log = Log("web")

    def read(self, max_age_s: float = READ_EVERY_S) -> Snapshot:
        """Return the state, read anew when the last one is older; blocks for 2 ms and up."""
        self._looks.begin(WAIT_S if self._looks.is_first else 0.0)
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
        try:
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
                    due = time.monotonic() + max(READ_EVERY_S, self._cost_s / READ_SHARE)
                    while (left_s := due - time.monotonic()) > 0:
                        await anyio.sleep(min(left_s, STOP_EVERY_S))
                        if is_stopping():
                            break
                    continue
                with anyio.move_on_after(IDLE_S):
                    await self._woken.wait()
        finally:
            self._accounts.close()

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

    def forget(self) -> None:
        """Let the next page read all anew: an action has changed something."""
        # Another one: what is just being read beside goes into the one before, which no page shows.
        self._states = {}
        self._looks.forget()
        self._read_at = 0.0

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _read(self) -> Snapshot:
        fleet, fleet_error, now = None, "", time.time()
        if self._queue:
            self._expect_roles()
            answer = fleet_at(self._queue)
            if isinstance(answer, QueueError):
                fleet_error = answer.message
            else:
                fleet = answer
        common = partial(
            of_common,
            self._settings,
            self._agents,
            self._warnings,
            roles=self._expected,
            file=self._accounts,
            codes=codes_from(disk=False),
        )
        found = {"": merged(guarded(common), self._looks.common)}
        roles = tuple(worker.queues for worker in fleet.workers) if fleet else fleet_error
        shared = self._health(), self._processes(), roles
        looks = {each.agent: self._looks.of(each) for each in self._agents}
        agents = {}
        for settings in self._agents:
            look, known = looks[settings.agent], self._state(settings, looks[settings.agent], shared)
            waiting = known.state["filesWaiting"] if known.state else 0
            agents[settings.agent] = AgentFigures(
                agent=settings.agent,
                state=known.state,
                files_behind=max(look.files_behind, waiting),
                error=known.error,
            )
            found[settings.agent] = merged(known.findings, look.findings, look.examined)
        found = self._dated(found, looks, now)
        return Snapshot(
            at=now,
            agents=agents,
            fleet=fleet,
            fleet_error=fleet_error,
            expected=self._expected,
            spending=spent(self._accounts, self._settings.limits, now),
            has_queue=bool(self._queue),
            findings=found,
            files_at=min((look.at for look in looks.values()), default=0.0),
        )

    def _dated(
        self, found: dict[str, tuple[Finding, ...]], looks: dict[str, Look], now: float
    ) -> dict[str, tuple[Finding, ...]]:
        """Keep when each finding was first seen, and put it into those that do not know it."""
        rows, disk = codes_from(disk=False) | {"not_examined"}, codes_from(disk=True)
        codes = {agent: rows | (disk if look.at else CHEAP) for agent, look in looks.items()}
        # A home that cannot be written is looked at all the same.
        with suppress(IndexFault):
            every = (each for part in found.values() for each in part)
            first_seen.note(self._accounts, every, codes | {"": rows}, now)
        return {agent: first_seen.dated(self._accounts, part) for agent, part in found.items()}

    def _expect_roles(self) -> None:
        """Name the roles that the configuration needs; an open batch, of which an index tells, needs one."""
        if time.monotonic() - self._expected_at > RESTING_S:
            needed = commands(list(self._agents), with_api=False)
            self._expected = tuple(role for role in needed if role != "watch")
            self._expected_at = time.monotonic()

    def _health(self) -> object:
        """Return what is known of all provider accounts: agents share them."""
        with suppress(IndexFault), self._accounts.reading() as connection:
            return connection.execute(_HEALTH).fetchall() if connection else []
        return None

    def _processes(self) -> object:
        with suppress(IndexFault):
            return [(each.kind, each.agents, each.is_alive) for each in home_processes.listed(self._accounts)]
        return None

    def _state(self, settings: AgentSettings, look: Look, shared: object) -> _KnownState:
        """Return what an agent's rows say, read again where that may differ."""
        now = time.monotonic()
        mark = index_mark(settings), settings.workspace.is_dir(), look.roots, disk.mark(settings), shared
        known = self._states.get(settings.agent)
        if known is None:
            return self._read_state(self._states, settings, look, mark)
        state, trouble = known.state, [each for each in known.findings if each.is_trouble]
        is_at_work = known.error or trouble or (state and is_busy(state))
        pause_s = max(STALE_S if is_at_work else RESTING_S, len(self._agents) * known.cost_s / STALE_SHARE)
        if known.mark == mark and now - known.read_at < pause_s:
            return known
        if known.cost_s <= SLOW_S:
            return self._read_state(self._states, settings, look, mark)
        if now - known.read_at > known.cost_s / SLOW_SHARE and settings.agent not in self._reading:
            self._reading.add(settings.agent)
            args = (self._states, settings, look, mark)
            threading.Thread(target=self._read_beside, args=args, name="slow rows", daemon=True).start()
        return known

    def _read_state(
        self, states: dict[str, _KnownState], settings: AgentSettings, look: Look, mark: object
    ) -> _KnownState:
        began_s = time.thread_time()
        state, error, codes = None, "", codes_from(disk=False) | CHEAP
        find = partial(of_agent, settings, plan=look.plan, queue=self._queue, codes=codes)
        try:
            state = agent_state(
                settings,
                self._settings.prices,
                queue=self._queue,
                files_behind=None,
                plan=look.plan,
                codes=codes,
            )
            found = find() if state is None else state["findings"]
        except IndexFault as fault:
            error, found = fault.message, find(fault=fault)
        except MemlineError as trouble:
            error, found = trouble.message, (not_examined(trouble),)
        known = _KnownState(
            mark=mark,
            read_at=time.monotonic(),
            cost_s=time.thread_time() - began_s,
            state=state,
            findings=found,
            error=error,
        )
        states[settings.agent] = known
        return known

    def _read_beside(
        self, states: dict[str, _KnownState], settings: AgentSettings, look: Look, mark: object
    ) -> None:
        try:
            self._read_state(states, settings, look, mark)
        finally:
            self._reading.discard(settings.agent)


def is_busy(state: dict[str, Any]) -> bool:
    """Tell by the state of an agent whether something of it is under way, or waits."""
    counts = state["vectors"]
    return bool(state["jobs"] or state["vectorsPerSecond"] or counts["wanted"] or counts["leased"])
