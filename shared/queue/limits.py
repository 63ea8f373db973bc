"""When a provider may be called: holds, and budgets of requests and tokens a minute, for all who call it."""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from shared.clock import Clock, SystemClock

#: Seconds that a budget counts for: the provider's minute, and two more. A place is taken here before the
#: request is on its way, and the provider counts when it has come: what is sent slowly and what is sent fast
#: are nearer to each other there. Without them a fleet made 61 requests in a minute that allowed 60.
WINDOW_S = 62.0


class Limits(Protocol):
    """Shared by all embed workers of a provider; in one process here, in Redis for a fleet."""

    def take(
        self,
        provider: str,
        *,
        tokens: int,
        max_requests: int = 0,
        max_tokens: int = 0,
        patience_s: float = 0.0,
    ) -> float:
        """Take a place for a request of so many tokens; limits are per minute, 0 for none.

        Returns the seconds until the place, 0 for now. Longer than `patience_s`, nothing was taken. Places
        are given in the order in which they are asked for, so that of many who wait none waits in vain.
        """
        ...

    def held(self, provider: str) -> float:
        """Seconds until anybody may call; 0 when nothing holds."""
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
        #: When each place is, and its tokens; in order, some of them still to come.
        self._taken: dict[str, deque[tuple[float, int]]] = {}

    def take(
        self,
        provider: str,
        *,
        tokens: int,
        max_requests: int = 0,
        max_tokens: int = 0,
        patience_s: float = 0.0,
    ) -> float:
        now = self._clock.now()
        with self._lock:
            taken = self._taken.setdefault(provider, deque())
            while taken and taken[0][0] <= now - WINDOW_S:
                taken.popleft()
            at = max(now, self._held.get(provider, 0.0), _next(taken, tokens, max_requests, max_tokens))
            if at - now <= patience_s:
                taken.append((at, tokens))
            return at - now

    def held(self, provider: str) -> float:
        with self._lock:
            return max(0.0, self._held.get(provider, 0.0) - self._clock.now())

    def hold(self, provider: str, seconds: float) -> None:
        with self._lock:
            until = self._clock.now() + seconds
            self._held[provider] = max(until, self._held.get(provider, 0.0))


def _next(taken: deque[tuple[float, int]], tokens: int, max_requests: int, max_tokens: int) -> float:
    """When the next place is; never before the last one that was given."""
    if not taken:
        return 0.0
    at = taken[-1][0]
    if max_requests and len(taken) >= max_requests:
        at = max(at, taken[len(taken) - max_requests][0] + WINDOW_S)
    excess = sum(used for _, used in taken) + tokens - max_tokens
    if max_tokens and excess > 0:
        for earlier, used in taken:
            excess -= used
            at = max(at, earlier + WINDOW_S)
            # A request above the whole budget goes alone rather than never: when all others are over.
            if excess <= 0:
                break
    return at
