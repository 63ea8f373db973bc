"""The timer beside the store worker: it turns "later" into a `Sweep` message at the right time.

A sweep is also the safety net for everything that can be lost on the way: a lost message costs one period.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shared.errors import QueueError
from shared.logs import Log

#: Seconds between two deep sweeps.
SWEEP_EVERY_S = 5.0


class Bell:
    """Calls `ring(agent, deep)` when asked to, and deeply every `every_s` for all known agents."""

    def __init__(self, ring: Callable[[str, bool], object], *, every_s: float = SWEEP_EVERY_S) -> None:
        self._ring = ring
        self._every_s = every_s
        self._condition = threading.Condition()
        self._due: dict[str, float] = {}
        self._agents: set[str] = set()
        self._stopped = False
        self._log = Log("bell")
        self._thread = threading.Thread(target=self._run, name="bell", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._condition:
            self._stopped = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def watch(self, agent: str) -> None:
        """Sweep this agent regularly from now on."""
        with self._condition:
            self._agents.add(agent)
            self._condition.notify()

    def ask(self, agent: str, after_s: float) -> None:
        """Ring for this agent in `after_s` seconds at the latest."""
        due = time.monotonic() + max(after_s, 0.0)
        with self._condition:
            if due < self._due.get(agent, float("inf")):
                self._due[agent] = due
                self._condition.notify()

    def _run(self) -> None:
        next_deep = time.monotonic() + self._every_s
        while True:
            with self._condition:
                if self._stopped:
                    return
                now = time.monotonic()
                wake = min([next_deep, *self._due.values()])
                if wake > now:
                    self._condition.wait(wake - now)
                    continue
                due = [agent for agent, at in self._due.items() if at <= now]
                for agent in due:
                    del self._due[agent]
                deep = sorted(self._agents) if next_deep <= now else []
            # Outside the lock: ringing sends a message, and a sender may be asking at the same time.
            for agent in due:
                self._try(agent, False)
            for agent in deep:
                self._try(agent, True)
            if next_deep <= now:
                next_deep = now + self._every_s

    def _try(self, agent: str, deep: bool) -> None:
        try:
            self._ring(agent, deep)
        except QueueError as error:
            # Redis has been away for longer than a sender waits. The next deep sweep makes up for this one.
            self._log.error("sweep.not_sent", agent=agent, error=error.message)
