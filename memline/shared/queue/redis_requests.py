"""Tell the dispatcher of a fleet about its queues, in Redis."""

from __future__ import annotations

import time

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.heartbeat import live_workers
from memline.shared.queue.in_flight import (
    GONE_S,
    LOOK_EVERY_S,
    PER_THREAD,
    REMEMBER_S,
    InFlightRequests,
)
from memline.shared.queue.routes import QUEUES


class RedisRequests(InFlightRequests):
    """The queues of a fleet."""

    def __init__(self, address: QueueAddress) -> None:
        super().__init__()
        self._client = redis_client.client(address)
        self._looked_at = 0.0
        self._embed_threads = QUEUES["embed"].threads
        # Processes of one fleet start together.
        self._batch_worker_seen = time.monotonic()

    def begin(self, lease: str, for_s: float) -> bool:
        seconds = max(1, int(for_s + REMEMBER_S))
        return bool(self._client.set(self._client.key(f"begun:{lease}"), 1, nx=True, ex=seconds))

    def credits(self) -> int:
        """While Redis is away, as many as before; while no embed worker is alive, as for one process."""
        self._look()
        return PER_THREAD * self._embed_threads

    def serves_batches(self) -> bool:
        self._look()
        return time.monotonic() - self._batch_worker_seen < GONE_S

    def store_depth(self) -> int:
        return int(self._client.llen(self._client.key("store")))

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            threads_of = [worker.threads_of for worker in live_workers(self._client)]
        except QueueError:
            # The sender of the requests meets the same trouble, waits for its end and says so.
            self._batch_worker_seen = max(self._batch_worker_seen, now - GONE_S + LOOK_EVERY_S)
            return
        self._embed_threads = sum(each.get("embed", 0) for each in threads_of) or QUEUES["embed"].threads
        if any("batch" in each for each in threads_of):
            self._batch_worker_seen = now
