"""Time the sweeps of the store worker: turn "later" into a `Sweep` message at the right time.

A sweep is also the safety net for everything that can be lost on the way: a lost message costs one period.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from operator import itemgetter

from memline.shared.errors import QueueError
from memline.shared.logs import Log

#: Seconds between two deep sweeps.
SWEEP_EVERY_S = 5.0


class SweepTimer:
    """Calls `send_sweep(agent, deep)` when scheduled, and deeply every `every_s` for all watched agents."""

    def __init__(self, send_sweep: Callable[[str, bool], object], *, every_s: float = SWEEP_EVERY_S) -> None:
        self._send_sweep = send_sweep
        self._every_s = every_s
        self._condition = threading.Condition()
        #: (agent, whether deeply) -> when that is due (monotonic seconds).
        self._due: dict[tuple[str, bool], float] = {}
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="sweep-timer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._condition:
            self._is_stopped = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def watch(self, agent: str) -> None:
        """Sweep this agent regularly from now on."""
        self.schedule(agent, self._every_s, deep=True)

    def schedule(self, agent: str, after_s: float, *, deep: bool = False) -> None:
        """Sweep this agent in `after_s` seconds at the latest."""
        due = time.monotonic() + after_s
        with self._condition:
            if due < self._due.get((agent, deep), float("inf")):
                self._due[agent, deep] = due
                self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                if self._is_stopped:
                    return
                (agent, deep), due = min(self._due.items(), key=itemgetter(1), default=(("", False), None))
                wait_s = None if due is None else due - time.monotonic()
                if wait_s is None or wait_s > 0:
                    self._condition.wait(wait_s)
                    continue
                del self._due[agent, deep]
            # Outside the lock: a sweep is a message, and its sender may be scheduling another.
            if deep:
                self.watch(agent)
            try:
                self._send_sweep(agent, deep)
            except QueueError as error:
                # Redis has been away for longer than a sender waits. The next deep sweep makes up for this.
                Log("sweep").error("sweep.not_sent", agent=agent, error=error.message)
