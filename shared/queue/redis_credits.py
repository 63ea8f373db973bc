"""Credits of a fleet: they follow the embed workers that come and go."""

from __future__ import annotations

import time

from shared.errors import QueueError
from shared.queue import server
from shared.queue.credits import EMBED_THREADS, PER_THREAD
from shared.queue.presence import threads_serving

#: Seconds between two looks at who is alive: as often as workers give a sign of life.
LOOK_EVERY_S = 2.0


class RedisCredits:
    """Two requests for each embed thread alive; see `shared.queue.credits`. For the store thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = server.client(url)
        self._threads = EMBED_THREADS
        self._looked: float | None = None

    def now(self) -> int:
        """Requests that may be out at this moment; while Redis is away, as many as before."""
        if self._looked is None or time.monotonic() - self._looked >= LOOK_EVERY_S:
            self._looked = time.monotonic()
            try:
                with server.translated(self._url):
                    self._threads = threads_serving(self._client, "embed") or EMBED_THREADS
            except QueueError:
                # Whoever sends the requests meets the same trouble, waits for its end and says so.
                pass
        return PER_THREAD * self._threads
