"""Give code its time, so that tests never sleep.

The rule: pure functions and functions of SQL take `now`, in seconds since the epoch, and never read a clock.
Objects with a life, which wait or stamp more than once (workers, writers, limits), take a `Clock` and pass
`clock.now()` down, one reading for each transaction.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> float:
        """Return seconds since the epoch, with fraction."""

    def now_ns(self) -> int:
        """Return nanoseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds that are never set, since a moment that all processes of this machine share."""

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""


class SystemClock:
    """Uses the machine's clock."""

    def now(self) -> float:
        return time.time()

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
