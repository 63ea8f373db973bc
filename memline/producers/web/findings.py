"""Keep what is found wrong, for the overview: found in a thread, as often as its cost allows.

What rows and Redis say is good for a second, what takes a look at files for longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from memline.producers.builtin import troubles_of
from memline.producers.reports.doctor import examine_agent, examine_common
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import IndexFault, MemlineError
from memline.shared.finding import GOOD_FOR_S, OK, PROBLEM, Finding
from memline.shared.findings.diagnosis import merged, of_agent, of_error, queue_of
from memline.shared.findings.table import AGENT, rows
from memline.shared.index import driver
from memline.shared.values import value

#: The same for those that take a look at files, at least; and the part of the time that looking may take.
FILES_GOOD_FOR_S = 10.0
SHARE = 1 / 200

#: Seconds that the first reader waits for them.
WAIT_S = 1.5


@value
class Found:
    """The findings of one look."""

    #: When rows and Redis were asked, and when files were looked at last (seconds since the epoch).
    rows_at: float
    files_at: float
    #: Agent -> what was found of it; under the empty name what is of the installation.
    by_agent: dict[str, tuple[Finding, ...]]

    def of(self, agents: Sequence[str], *, with_installation: bool) -> list[Finding]:
        names = [""] * with_installation + list(agents)
        return [each for name in names for each in self.by_agent.get(name, ())]


class Findings:
    """Looks when it is asked and the last look is old; an answer is never older than the reader is told."""

    def __init__(
        self, settings: Settings, agents: Sequence[AgentSettings], warnings: Sequence[str] = ()
    ) -> None:
        """`warnings`: those of loading the configuration."""
        self._settings = settings
        self._agents = tuple(agents)
        self._warnings = tuple(warnings)
        self._lock = threading.Lock()
        self._found: Found | None = None
        #: What the last look at files found, by agent, and when it is due again (monotonic seconds).
        self._of_files: dict[str, list[Finding]] = {}
        self._files_at = self._files_due = 0.0
        self._due = 0.0
        self._looking: threading.Event | None = None

    def get(self, wait_s: float = WAIT_S) -> Found | None:
        """Return findings that are a second old, or older where a look takes long; None before the first."""
        with self._lock:
            if self._looking is None and time.monotonic() >= self._due:
                self._looking = threading.Event()
                thread = threading.Thread(
                    target=self._look, args=(self._looking,), name="findings", daemon=True
                )
                thread.start()
            looking = self._looking
        if looking is not None:
            looking.wait(wait_s)
        return self._found

    def forget(self) -> None:
        """Have the next reader look again: something was changed."""
        with self._lock:
            self._due = self._files_due = 0.0

    def _look(self, done: threading.Event) -> None:
        try:
            queue = queue_of(self._settings)
            if time.monotonic() >= self._files_due:
                self._look_at_files(queue)
            # Behind what may take long.
            rows_at = time.time()
            common = partial(examine_common, self._settings, self._agents, self._warnings)
            by_agent = {"": tuple(_guarded(common))}
            for settings in self._agents:
                of_rows = _guarded(partial(_of_rows, settings, queue))
                by_agent[settings.agent] = merged(of_rows, self._of_files[settings.agent])
            self._found = Found(rows_at=rows_at, files_at=self._files_at, by_agent=by_agent)
        finally:
            with self._lock:
                self._due = time.monotonic() + GOOD_FOR_S
                self._looking = None
            done.set()

    def _look_at_files(self, queue: str) -> None:
        began = time.monotonic()
        codes = {row.code for row in rows(AGENT) if row.from_disk}
        for settings in self._agents:
            met = troubles_of(self._settings, settings)
            found = _guarded(partial(examine_agent, settings, queue=queue, met=met))
            self._of_files[settings.agent] = [
                each for each in found if each.code in codes or each.level == OK
            ]
        ended = time.monotonic()
        self._files_at, self._files_due = time.time(), ended + max(FILES_GOOD_FOR_S, (ended - began) / SHARE)


def _of_rows(settings: AgentSettings, queue: str) -> tuple[Finding, ...]:
    try:
        with driver.reading_if_any(settings.index_path) as reader:
            return of_agent(settings, index=reader, queue=queue)
    except IndexFault as error:
        return of_error(settings, error)


def _guarded(examine: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what is found; what cannot be examined is a finding."""
    try:
        return list(examine())
    except MemlineError as error:
        return [Finding(code="not_examined", level=PROBLEM, what=error.message, action=error.hint)]
