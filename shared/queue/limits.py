"""When a provider may be called: holds, and budgets of requests and tokens a minute, for all who call it."""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from shared.clock import Clock, SystemClock

#: Seconds of the window of both budgets: no minute, wherever it begins, holds more than the limit.
WINDOW_S = 60.0


class Limits(Protocol):
    """Shared by all embed workers of a provider; in one process here, in Redis for a fleet."""

    def take(self, provider: str, *, tokens: int, max_requests: int = 0, max_tokens: int = 0) -> float:
        """Take a place for a request of so many tokens; limits are per minute, 0 for none.

        Returns 0 when it may go now, else the seconds to wait before asking again; then nothing was taken.
        """
        ...

    def hold(self, provider: str, seconds: float) -> None:
        """Keep everybody from calling for so long; a shorter time never cuts a longer one."""
        ...


class InProcessLimits:
    """Limits of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._held: dict[str, float] = {}
        self._taken: dict[str, deque[tuple[float, int]]] = {}

    def take(self, provider: str, *, tokens: int, max_requests: int = 0, max_tokens: int = 0) -> float:
        now = self._clock.now()
        with self._lock:
            held = self._held.get(provider, 0.0) - now
            if held > 0:
                return held
            taken = self._taken.setdefault(provider, deque())
            while taken and taken[0][0] <= now - WINDOW_S:
                taken.popleft()
            if max_requests and len(taken) >= max_requests:
                return taken[0][0] + WINDOW_S - now
            excess = sum(used for _, used in taken) + tokens - max_tokens
            # A request above the whole budget goes alone rather than never.
            if max_tokens and taken and excess > 0:
                for at, used in taken:
                    excess -= used
                    if excess <= 0:
                        return at + WINDOW_S - now
                return WINDOW_S
            taken.append((now, tokens))
            return 0.0

    def hold(self, provider: str, seconds: float) -> None:
        with self._lock:
            until = self._clock.now() + seconds
            self._held[provider] = max(until, self._held.get(provider, 0.0))
