"""The one seam to time: everything that waits or stamps takes a `Clock`, so tests never sleep."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock and waiting."""

    def now(self) -> float:
        """Seconds since the epoch, with fraction."""
        ...

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def now_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock for tests: it moves only when it is told to, and `sleep` moves it."""

    def __init__(self, start: float = 1_750_000_000.0) -> None:
        self._now_ns = int(start * 1e9)

    def now(self) -> float:
        return self._now_ns / 1e9

    def now_ns(self) -> int:
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now_ns += int(seconds * 1e9)
