"""Tell the dispatcher about its queues: how many requests may be in flight, and how much waits.

**Credits**: two requests for each embed thread that is alive. One is being answered, the other lies in the
worker so that its thread never waits. More would only hide work in the queue, where a live edit stands behind
it.

**Begun**: a worker of a fleet notes in Redis that it begins to send a request. A message that is delivered
again, since its worker was killed, finds the note and is dropped; the deadline of its lease frees its texts.

    <fleet>:begun:<lease>    string: a worker has begun to send this request
"""

from __future__ import annotations

import time

from dramatiq.brokers.stub import StubBroker

from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.heartbeat import embed_threads, is_served
from memline.shared.queue.redis_client import key
from memline.shared.queue.routes import QUEUES

#: Requests in flight per embed thread.
PER_THREAD = 2

#: Texts in flight at most, over all requests. A text with its vector of 1,536 numbers is about 8 KB, so that
#: this is 64 MB in Redis; when many threads are alive each request is smaller, none of them goes without.
MAX_ROWS_IN_FLIGHT = 8_192

#: Seconds between two looks at which workers are alive: as often as their heartbeat.
LOOK_EVERY_S = 2.0

#: Seconds a queue may be without a worker before it counts as not served: a restart takes less.
GONE_S = 30.0

#: Seconds that Redis remembers a request that was begun, beyond its lease.
REMEMBER_S = 60.0


class InProcessRequests:
    """Tells the dispatcher of one process about its queues, which are in its memory."""

    def __init__(self, broker: StubBroker | None = None, *, serves_batches: bool = False) -> None:
        self._broker = broker
        self._serves_batches = serves_batches
        #: The leases whose requests were begun; what is left at the end of the process was not sent.
        self.begun: set[str] = set()

    def credits(self) -> int:
        return PER_THREAD * QUEUES["embed"].threads

    def serves_batches(self) -> bool:
        return self._serves_batches

    def store_depth(self) -> int:
        return self._broker.queues["store"].qsize() if self._broker else 0

    def is_chunking(self) -> bool:
        # Messages that a worker has taken and not finished are among them.
        return self._broker is not None and self._broker.queues["chunk"].unfinished_tasks > 0

    def begin(self, lease: str, for_s: float) -> bool:
        self.begun.add(lease)
        return True


class RedisRequests:
    """Tells the dispatcher about the queues of a fleet. Other threads use `store_depth` and `begin` alone."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = redis_client.client(url)
        self._looked_at: float | None = None
        self._embed_threads = QUEUES["embed"].threads
        # Processes of one fleet start together.
        self._batch_worker_seen = time.monotonic()

    def begin(self, lease: str, for_s: float) -> bool:
        """Note that a request is sent, whose lease lasts so many seconds; False when one was sent before.

        Raises QueueError while Redis is away: nothing is sent that cannot be noted.
        """
        with redis_client.translated(self._url):
            name = key(self._client, f"begun:{lease}")
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
        with redis_client.translated(self._url):
            return int(self._client.llen(key(self._client, "store")))

    def is_chunking(self) -> bool:
        """Tell whether files wait for a chunk worker, or one of them has some."""
        try:
            with redis_client.translated(self._url):
                return bool(self._client.hlen(key(self._client, "chunk.msgs")))
        except QueueError:
            # The next sender meets the same trouble and says so.
            return False

    def _look(self) -> None:
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            with redis_client.translated(self._url):
                self._embed_threads = embed_threads(self._client) or QUEUES["embed"].threads
                if is_served(self._client, "batch"):
                    self._batch_worker_seen = now
        except QueueError:
            # The sender of the requests meets the same trouble, waits for its end and says so.
            self._batch_worker_seen = max(self._batch_worker_seen, now - GONE_S + LOOK_EVERY_S)


InFlightRequests = InProcessRequests | RedisRequests


def rows_per_request(max_rows: int, credits: int) -> int:
    """Shrink a provider's cap of rows when so many credits would put too much into Redis."""
    return max(1, min(max_rows, MAX_ROWS_IN_FLIGHT // credits))
