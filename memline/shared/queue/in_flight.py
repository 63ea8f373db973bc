"""Tell the dispatcher about its queues: how many requests may be in flight, and how much waits.

A worker of a fleet notes in Redis that it begins to send a request. A message that is delivered again, since
its worker was killed, finds the note and is dropped; the deadline of its lease frees its texts.

    <fleet>:begun:<lease>    string: a worker has begun to send this request
"""

from __future__ import annotations

from dramatiq.brokers.stub import StubBroker

from memline.shared.queue.routes import QUEUES

#: Requests in flight per embed thread. One is being answered, the other lies in the worker so that its thread
#: never waits. More would only hide work in the queue, where a live edit stands behind it.
PER_THREAD = 2

#: Texts in flight at most, over all requests. A text with its vector of 1,536 numbers is about 8 KB, so that
#: this is 64 MB in Redis; when many threads are alive each request is smaller, none of them goes without.
MAX_ROWS_IN_FLIGHT = 8_192


class InFlightRequests:
    """What the dispatcher and the workers ask of the queues: here those in the memory of one process."""

    def __init__(self, broker: StubBroker | None = None, *, serves_batches: bool = False) -> None:
        self._broker = broker
        self._serves_batches = serves_batches
        #: The leases whose requests were begun; what is left at the end of the process was not sent.
        self.begun: set[str] = set()

    def credits(self) -> int:
        """Count the requests that may be in flight at this moment."""
        return PER_THREAD * QUEUES["embed"].threads

    def serves_batches(self) -> bool:
        """Tell whether a batch worker is there."""
        return self._serves_batches

    def store_depth(self) -> int:
        """Count the messages that wait for the store worker. Any thread may ask."""
        return self._broker.queues["store"].qsize() if self._broker else 0

    def begin(self, lease: str, for_s: float) -> bool:
        """Note that a request is sent, whose lease lasts so many seconds; False when one was sent before.

        Any thread may do so. Raises QueueError while Redis is away: nothing is sent that cannot be noted.
        """
        self.begun.add(lease)
        return True


def rows_per_request(max_rows: int, credits: int) -> int:
    """Shrink a provider's cap of rows when so many credits would put too much into Redis."""
    return max(1, min(max_rows, MAX_ROWS_IN_FLIGHT // credits))
