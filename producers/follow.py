"""Following the files of agents: a full reconcile at the start, then what the watcher sees.

Only paths are sent. What was announced and did not arrive in the ledger is found again by the next full
look, so a lost message costs `LOOK_AGAIN_S`, not a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from types import TracebackType

from producers.announce import announce
from producers.plan import Known, ledger_of, look
from producers.watch import Watcher
from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import choose
from shared.errors import IndexMissing
from shared.index import driver
from shared.logs import Log

#: Seconds between two looks at all files by size and time; 5,000 files cost about 0.1 s of CPU.
LOOK_AGAIN_S = 60.0


class Follow:
    """Follows the files of some agents; a context manager. The broker of this process is set before."""

    def __init__(self, agents: Sequence[AgentSettings], *, clock: Clock | None = None) -> None:
        self._agents = tuple(agents)
        self._clock = clock or SystemClock()
        self._log = Log("follow")
        self._stack = ExitStack()
        self._watchers: dict[str, Watcher] = {}

    def __enter__(self) -> Follow:
        with self._stack:
            for settings in self._agents:
                if settings.memory.sync.watch:
                    # Before the first look: a change in between is then seen by both, not by none.
                    self._watchers[settings.agent] = self._stack.enter_context(self._watch(settings))
            for settings in self._agents:
                self._reconcile(settings)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def describe(self) -> list[str]:
        """A line an agent: what is followed, and how."""
        lines = []
        for settings in self._agents:
            watcher = self._watchers.get(settings.agent)
            how = "not watching (sync.watch is off)" if watcher is None else watcher.mode
            if watcher is not None and watcher.reason:
                how += f" ({watcher.reason})"
            lines.append(f"memline: agent {settings.agent} follows {settings.workspace}: {how}")
        return lines

    def next_look_s(self) -> float:
        """Seconds until `look_again` should be called."""
        minutes = [settings.memory.sync.interval_minutes for settings in self._agents]
        return min([LOOK_AGAIN_S, *(60.0 * each for each in minutes if each)])

    def look_again(self) -> None:
        """A full look at the files of all agents that are watched or have an interval."""
        for settings in self._agents:
            if settings.memory.sync.watch or settings.memory.sync.interval_minutes:
                self._reconcile(settings)

    def _watch(self, settings: AgentSettings) -> Watcher:
        return Watcher(
            settings.workspace,
            settings.memory.extra_paths,
            debounce_s=settings.memory.sync.watch_debounce_ms / 1000,
            on_paths=lambda paths: self._send(settings, sorted(paths), "watch"),
            on_rescan=lambda: self._reconcile(settings),
        )

    def _reconcile(self, settings: AgentSettings) -> None:
        try:
            with (
                closing(driver.open_reader(settings.index_path)) as reader,
                driver.faults(settings.index_path),
            ):
                known = ledger_of(reader)
        except IndexMissing:
            known = Known()
        plan = look(settings, choose(settings), known)
        self._send(settings, plan.changes.announced(), "scan")

    def _send(self, settings: AgentSettings, paths: Sequence[str], reason: str) -> None:
        if paths:
            self._log.info("files.announced", agent=settings.agent, files=len(paths), reason=reason)
            announce(settings.agent, paths)
