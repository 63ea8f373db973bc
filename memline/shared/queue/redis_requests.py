"""Tell the dispatcher of a fleet about its queues, in Redis."""

from __future__ import annotations

import time

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.heartbeat import embed_threads, is_served
from memline.shared.queue.in_flight import GONE_S, LOOK_EVERY_S, PER_THREAD, REMEMBER_S
from memline.shared.queue.routes import QUEUES


class RedisRequests:
    """Tells the dispatcher about the queues of a fleet. Other threads use `store_depth` and `begin` alone."""

    def __init__(self, address: QueueAddress) -> None:
        self._address = address
        self._client = redis_client.client(address)
        self._looked_at: float | None = None
        self._embed_threads = QUEUES["embed"].threads
        # Processes of one fleet start together.
        self._batch_worker_seen = time.monotonic()

    def begin(self, lease: str, for_s: float) -> bool:
        """Note that a request is sent, whose lease lasts so many seconds; False when one was sent before.

        Raises QueueError while Redis is away: nothing is sent that cannot be noted.
        """
        with redis_client.translated(self._address):
            name = self._client.key(f"begun:{lease}")
            return bool(self._client.set(name, 1, nx=True, ex=max(1, int(for_s + REMEMBER_S))))

    def credits(self) -> int:
        """Count the requests that may be in flight at this moment.

        While Redis is away, as many as before; while no embed worker is alive, as for one process.
        """
        self._look()
        return PER_THREAD * self._embed_threads

    def serves_batches(self) -> bool:
        """Tell whether a batch worker has been there a moment ago."""
        self._look()
        return time.monotonic() - self._batch_worker_seen < GONE_S

    def store_depth(self) -> int:
        """Count the messages that wait for the store worker."""
        with redis_client.translated(self._address):
            return int(self._client.llen(self._client.key("store")))

    def is_chunking(self) -> bool:
        """Tell whether files wait for a chunk worker, or one of them has some."""
        try:
            with redis_client.translated(self._address):
                return bool(self._client.hlen(self._client.key("chunk.msgs")))
        except QueueError:
            # The next sender meets the same trouble and says so.
            return False

    def _look(self) -> None:
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            with redis_client.translated(self._address):
                self._embed_threads = embed_threads(self._client) or QUEUES["embed"].threads
                if is_served(self._client, "batch"):
                    self._batch_worker_seen = now
        except QueueError:
            # The sender of the requests meets the same trouble, waits for its end and says so.
            self._batch_worker_seen = max(self._batch_worker_seen, now - GONE_S + LOOK_EVERY_S)
