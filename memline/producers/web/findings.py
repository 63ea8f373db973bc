"""Keep what `memline doctor` finds, for the overview: found in a thread, as often as its cost allows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from memline.producers.reports.doctor import examine_agent, examine_common
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import MemlineError
from memline.shared.finding import PROBLEM, Finding
from memline.shared.findings.diagnosis import queue_of
from memline.shared.values import value

#: Seconds that findings are good for at least, and the part of the time that finding them may take.
GOOD_FOR_S = 10.0
SHARE = 1 / 200

#: Seconds that the first reader waits for them.
WAIT_S = 1.5


@value
class Found:
    """The findings of one look."""

    #: Seconds since the epoch.
    at: float
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
        self._due = 0.0
        self._looking: threading.Event | None = None

    def get(self, wait_s: float = WAIT_S) -> Found | None:
        """Return the last findings, and look again where they are old; None before the first."""
        with self._lock:
            if self._looking is None and time.monotonic() >= self._due:
                self._looking = threading.Event()
                thread = threading.Thread(
                    target=self._look, args=(self._looking,), name="findings", daemon=True
                )
                thread.start()
            looking, found = self._looking, self._found
        if looking is not None and found is None:
            looking.wait(wait_s)
        return self._found

    def forget(self) -> None:
        """Have the next reader look again: something was changed."""
        with self._lock:
            self._due = 0.0

    def _look(self, done: threading.Event) -> None:
        began = time.monotonic()
        try:
            queue = queue_of(self._settings)
            common = partial(examine_common, self._settings, self._agents, self._warnings)
            by_agent = {"": tuple(_guarded(common))}
            for settings in self._agents:
                by_agent[settings.agent] = tuple(_guarded(partial(examine_agent, settings, queue=queue)))
            self._found = Found(at=time.time(), by_agent=by_agent)
        finally:
            cost_s = time.monotonic() - began
            with self._lock:
                self._due = time.monotonic() + max(GOOD_FOR_S, cost_s / SHARE)
                self._looking = None
            done.set()


def _guarded(examine: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what is found; what cannot be examined is a finding."""
    try:
        return list(examine())
    except MemlineError as error:
        return [Finding(code="not_examined", level=PROBLEM, what=error.message, action=error.hint)]
