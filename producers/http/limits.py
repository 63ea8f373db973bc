"""How often a client may ask: so many times in any minute, counted exactly."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

#: Seconds that a request counts.
WINDOW_S = 60.0

#: Clients that are remembered; who has not asked for longest is forgotten first.
MAX_CLIENTS = 2_000


class PerMinute:
    """The requests of each client in the last minute. For the event loop's thread alone."""

    def __init__(self, limit: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._asked: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Count a request of the client; 0 when it is allowed, else the seconds until one would be."""
        if wait_s := self.wait_s(client):
            return wait_s
        if self._limit:
            times = self._asked.setdefault(client, deque())
            times.append(self._monotonic())
            self._asked.move_to_end(client)
            if len(self._asked) > MAX_CLIENTS:
                self._asked.popitem(last=False)
        return 0.0

    def wait_s(self, client: str) -> float:
        """Seconds until the client may ask again; 0 when it may now."""
        times = self._asked.get(client)
        if not self._limit or not times:
            return 0.0
        oldest = self._monotonic() - WINDOW_S
        while times and times[0] <= oldest:
            times.popleft()
        return times[0] - oldest if len(times) >= self._limit else 0.0
