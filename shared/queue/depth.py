"""How much work lies on the queues of a fleet, read from Redis in one round trip a queue.

dramatiq keeps every message in `<queue>.msgs` until it is acknowledged; the list `<queue>` holds the ids that
no worker has taken yet. So: in flight = stored - waiting.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import msgspec
import redis

from shared.queue import server
from shared.queue.broker import QUEUES
from shared.queue.fleet import NAMESPACE
from shared.queue.presence import BUCKET_S, WorkerSeen, done_key, workers_seen

#: Messages read at most to find the oldest of a queue: ids say nothing about their age.
OLDEST_SAMPLE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """One queue at one moment."""

    name: str
    #: Not taken by a worker yet.
    waiting: int
    #: Taken and not acknowledged.
    in_flight: int
    delayed: int
    dead: int
    #: Age of the oldest message that waits; 0 when none does.
    oldest_s: float
    #: Messages finished in the last minute.
    rate_per_minute: float

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "waiting": self.waiting,
            "inFlight": self.in_flight,
            "delayed": self.delayed,
            "dead": self.dead,
            "oldestSeconds": round(self.oldest_s, 1),
            "ratePerMinute": round(self.rate_per_minute, 1),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Queues, workers and memory of a fleet at one moment."""

    queues: tuple[QueueDepth, ...]
    workers: tuple[WorkerSeen, ...]
    #: Bytes of Redis in use, by all its users.
    used_memory: int


def read(url: str) -> Fleet:
    """Look at the queues. Raises QueueError when Redis cannot be asked."""
    with server.closing_client(url) as client, server.translated(url):
        return Fleet(
            queues=tuple(_depth(client, queue) for queue in QUEUES),
            workers=tuple(workers_seen(client)),
            used_memory=int(client.info("memory")["used_memory"]),
        )


def _depth(client: redis.Redis, queue: str) -> QueueDepth:
    base = f"{NAMESPACE}:{queue}"
    now = time.time()
    last = int(now) // BUCKET_S
    buckets = [done_key(queue, last - back) for back in range(60 // BUCKET_S)]
    pipe = client.pipeline(transaction=False)
    pipe.llen(base)
    pipe.hlen(f"{base}.msgs")
    pipe.hlen(f"{base}.DQ.msgs")
    pipe.zcard(f"{base}.XQ")
    pipe.lrange(base, 0, OLDEST_SAMPLE - 1)
    pipe.mget(buckets)
    results: Any = pipe.execute()
    waiting, stored, delayed, dead, ids, done = results
    return QueueDepth(
        name=queue,
        waiting=waiting,
        in_flight=max(0, stored - waiting),
        delayed=delayed,
        dead=dead,
        oldest_s=_oldest(client, base, ids, now),
        rate_per_minute=float(sum(int(count or 0) for count in done)),
    )


def _oldest(client: redis.Redis, base: str, ids: list[bytes], now: float) -> float:
    if not ids:
        return 0.0
    stored: Any = client.hmget(f"{base}.msgs", ids)
    ages = [0.0]
    for data in stored:
        if data is not None:
            try:
                ages.append(now - msgspec.msgpack.decode(data)["message_timestamp"] / 1000)
            except (msgspec.DecodeError, KeyError, TypeError):
                continue
    return max(ages)
