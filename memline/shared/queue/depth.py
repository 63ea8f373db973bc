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

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.heartbeat import WorkerInfo, live_workers
from memline.shared.queue.redis_client import FleetClient
from memline.shared.queue.routes import QUEUES

#: Messages read at most to find the oldest of a queue: ids say nothing about their age.
OLDEST_SAMPLE = 50


_RENAMED = {
    "in_flight": "inFlight",
    "oldest_s": "oldestSeconds",
    "rate_per_minute": "ratePerMinute",
    "dead_since": "deadSince",
}


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True, rename=_RENAMED):
    """One queue at one moment."""

    name: str
    role: str
    #: Not taken by a worker yet.
    waiting: int
    #: Taken and not acknowledged.
    in_flight: int
    #: Waiting for a retry.
    delayed: int
    dead: int
    #: Age of the oldest message that waits; 0 when none does.
    oldest_s: float
    #: Messages finished in the last minute.
    rate_per_minute: float
    #: When the oldest dead message became one (seconds since the epoch); None without any.
    dead_since: float | None = None

    def needs_worker(self, roles: Container[str]) -> bool:
        """Say whether some worker has to take its messages, where the configuration needs these roles."""
        is_missed = not QUEUES[self.role].is_optional or self.waiting or self.delayed or self.in_flight
        return self.role in roles and bool(is_missed)

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, workers and memory of a fleet at one moment."""

    queues: tuple[QueueDepth, ...]
    workers: tuple[WorkerInfo, ...]
    #: Bytes of Redis in use, by all its users.
    used_memory: int
    #: Bytes that Redis may use; 0 without a limit.
    max_memory: int = 0
    #: Why messages are refused, or may be lost, though Redis answers.
    error: QueueError | None = None

    def is_served(self, queue: QueueDepth) -> bool:
        """Say whether a worker that is alive takes messages from this queue."""
        return any(queue.role in worker.queues for worker in self.workers)


def read(address: QueueAddress, kept: FleetClient | None = None) -> Fleet:
    """Read the state of all queues. Raises QueueError when Redis cannot be asked.

    `kept`: a client of who looks again and again, which spares the connection: half of what a look costs.
    """
    if kept is not None:
        with redis_client.translated(address):
            return _read(kept, address)
    with redis_client.connected(address) as client:
        return _read(client, address)


def _read(client: FleetClient, address: QueueAddress) -> Fleet:
    memory: Any = client.info("memory")
    workers = tuple(live_workers(client))
    return Fleet(
        queues=tuple(_depths(client, workers)),
        workers=workers,
        used_memory=int(memory["used_memory"]),
        max_memory=int(memory.get("maxmemory", 0)),
        error=redis_client.trouble(client, memory, address),
    )


def _depths(client: FleetClient, workers: Sequence[WorkerInfo]) -> Iterator[QueueDepth]:
    now = time.time()
    pipe = client.pipeline(transaction=False)
    for queue in QUEUES:
        base = client.key(queue)
        pipe.llen(base)
        pipe.hlen(f"{base}.msgs")
        pipe.hlen(f"{base}.DQ.msgs")
        pipe.zcard(f"{base}.XQ")
        pipe.zrange(f"{base}.XQ", 0, 0, withscores=True)
        pipe.lrange(base, 0, OLDEST_SAMPLE - 1)
    found = pipe.execute()
    for queue, place in zip(QUEUES, range(0, len(found), 6), strict=True):
        waiting, stored, delayed, dead, first_dead, ids = found[place : place + 6]
        yield QueueDepth(
            name=queue,
            role=queue,
            waiting=waiting,
            in_flight=max(0, stored - waiting),
            delayed=delayed,
            dead=dead,
            oldest_s=round(_oldest_s(client, queue, ids, now), 1),
            rate_per_minute=float(sum(worker.done.get(queue, 0) for worker in workers)),
            dead_since=first_dead[0][1] / 1000 if first_dead else None,
        )


def _oldest_s(client: FleetClient, queue: str, ids: list[bytes], now: float) -> float:
    """Return the age of the oldest of these messages; 0 without any."""
    ages = [0.0]
    data: Any = client.hmget(f"{client.key(queue)}.msgs", ids) if ids else ()
    for content in data:
        with suppress(msgspec.DecodeError, KeyError, TypeError):
            ages.append(now - msgspec.msgpack.decode(content or b"")["message_timestamp"] / 1000)
    return max(ages)
