"""Whether anybody takes messages from a queue of a fleet, for those who would otherwise wait for nobody."""

from __future__ import annotations

import time

from shared.errors import QueueError
from shared.queue import server
from shared.queue.presence import is_served

#: Seconds between two looks.
LOOK_EVERY_S = 2.0

#: Seconds a queue may be without a worker before it counts as not served: a restart takes less.
GONE_S = 30.0


class Served:
    """Asked by the dispatcher before it makes a batch. For the store thread."""

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._queue = queue
        self._client = server.client(url)
        self._looked = 0.0
        # Processes of one fleet start together.
        self._seen = time.monotonic()

    def __call__(self) -> bool:
        """Whether a worker has been there a moment ago; while Redis is away, as before."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            try:
                with server.translated(self._url):
                    if is_served(self._client, self._queue):
                        self._seen = now
            except QueueError:
                self._seen = max(self._seen, now - GONE_S + LOOK_EVERY_S)
        return now - self._seen < GONE_S
