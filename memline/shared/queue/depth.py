"""Read how much work lies on the queues of a fleet, in one round trip a queue.

dramatiq keeps every message in `<queue>.msgs` until it is acknowledged; the list `<queue>` holds the ids that
no worker has taken yet; the messages of `<queue>.DQ.msgs` wait for a retry. The rest is in flight.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.heartbeat import WorkerInfo, live_workers
from memline.shared.queue.messages import ENVELOPES
from memline.shared.queue.redis_client import FleetClient
from memline.shared.queue.routes import QUEUES


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """One queue at one moment."""

    #: Also of the role that serves it.
    name: str
    #: Not taken by a worker yet.
    waiting: int
    #: Taken and not acknowledged.
    in_flight: int
    #: Waiting for a retry.
    delayed: int
    dead: int
    #: Age of the message that waits first, which is the oldest but for one that was put back; 0 without one.
    oldest_s: float
    #: Messages finished in the last minute.
    rate_per_minute: float

    def needs_worker(self, roles: Container[str]) -> bool:
        """Say whether some worker has to take its messages, where the configuration needs these roles."""
        is_missed = not QUEUES[self.name].is_optional or self.waiting or self.delayed or self.in_flight
        return self.name in roles and bool(is_missed)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "role": self.name,
            "waiting": self.waiting,
            "inFlight": self.in_flight,
            "delayed": self.delayed,
            "dead": self.dead,
            "oldestSeconds": self.oldest_s,
            "ratePerMinute": self.rate_per_minute,
        }


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, workers and memory of a fleet at one moment."""

    queues: tuple[QueueDepth, ...]
    workers: tuple[WorkerInfo, ...]
    #: Bytes of Redis in use, by all its users.
    used_memory: int
    #: Why messages are refused, or may be lost, though Redis answers.
    error: QueueError | None = None

    def is_served(self, queue: QueueDepth) -> bool:
        """Say whether a worker that is alive takes messages from this queue."""
        return any(queue.name in worker.queues for worker in self.workers)


def read(client: FleetClient) -> Fleet:
    """Read the state of all queues. Raises QueueError when Redis cannot be asked."""
    memory: Any = client.info("memory")
    workers = tuple(live_workers(client))
    return Fleet(
        queues=tuple(_depths(client, workers)),
        workers=workers,
        used_memory=int(memory["used_memory"]),
        error=redis_client.trouble(client, memory),
    )


def _depths(client: FleetClient, workers: Sequence[WorkerInfo]) -> Iterator[QueueDepth]:
    for queue in QUEUES:
        base = client.key(queue)
        pipe = client.pipeline(transaction=False)
        pipe.llen(base)
        pipe.hlen(f"{base}.msgs")
        pipe.hlen(f"{base}.DQ.msgs")
        pipe.zcard(f"{base}.XQ")
        pipe.lindex(base, 0)
        waiting, stored, delayed, dead, first = client.execute(pipe)
        content: Any = client.hget(f"{base}.msgs", first) if first else None
        oldest_s = 0.0
        with suppress(msgspec.DecodeError):
            oldest_s = time.time() - ENVELOPES.decode(content or b"").message_timestamp / 1000
        yield QueueDepth(
            name=queue,
            waiting=waiting,
            in_flight=max(0, stored - waiting),
            delayed=delayed,
            dead=dead,
            oldest_s=round(max(oldest_s, 0.0), 1),
            rate_per_minute=float(sum(worker.done.get(queue, 0) for worker in workers)),
        )
