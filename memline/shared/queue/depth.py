"""Read how much work lies on the queues of a fleet, in one round trip a queue.

dramatiq keeps every message in `<queue>.msgs` until it is acknowledged; the list `<queue>` holds the ids that
no worker has taken yet; `<queue>.delayed` those that wait for a retry. The rest is in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import redis

from memline.shared.queue import hosts, redis_client
from memline.shared.queue.heartbeat import (
    BUCKET_S,
    KEPT_S,
    WorkerInfo,
    done_key,
    last_failure,
    live_workers,
)
from memline.shared.queue.redis_client import key
from memline.shared.queue.routes import QUEUES
from memline.shared.values import value

#: Messages read at most to find the oldest of a queue: ids say nothing about their age.
OLDEST_SAMPLE = 50


_RENAMED = {
    "host": "indexHost",
    "in_flight": "inFlight",
    "oldest_s": "oldestSeconds",
    "rate_per_minute": "ratePerMinute",
}


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True, rename=_RENAMED):
    """One queue at one moment."""

    name: str
    role: str
    #: The index host it is on; empty where the fleet has one, and for a queue of all.
    host: str = ""
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

    @property
    def is_shared(self) -> bool:
        """Whether all index hosts have it in common."""
        return hosts.is_shared(self.role)

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


@value
class Fleet:
    """Queues, workers and memory of a fleet at one moment."""

    queues: tuple[QueueDepth, ...]
    workers: tuple[WorkerInfo, ...]
    #: Bytes of Redis in use, by all its users.
    used_memory: int
    #: Why a worker ended by itself of late; empty when none did.
    worker_failure: str = ""

    def is_served(self, queue: QueueDepth) -> bool:
        """Say whether a worker that is alive takes messages from this queue."""
        return any(
            queue.role in worker.queues and (queue.is_shared or worker.index_host == queue.host)
            for worker in self.workers
        )


def read(url: str) -> Fleet:
    """Read the state of all queues. Raises QueueError when Redis cannot be asked."""
    with redis_client.connected(url) as client:
        return Fleet(
            queues=tuple(_depths(client)),
            workers=tuple(live_workers(client)),
            worker_failure=last_failure(client),
            used_memory=int(client.info("memory")["used_memory"]),
        )


def rates(url: str) -> dict[str, list[int]]:
    """Count the messages finished in each `BUCKET_S` of the last minutes, oldest first, by queue."""
    with redis_client.connected(url) as client:
        last = int(redis_client.now(client)) // BUCKET_S
        buckets = range(last - KEPT_S // BUCKET_S + 1, last + 1)
        names = hosts.queues(client, QUEUES)
        pipe = client.pipeline(transaction=False)
        for queue in names:
            pipe.mget([done_key(client, queue, bucket) for bucket in buckets])
        found = pipe.execute()
    return {queue: [int(count or 0) for count in counts] for queue, counts in zip(names, found, strict=True)}


def _depths(client: redis.Redis) -> Iterator[QueueDepth]:
    """Read the queues of all index hosts; those from before they had names only while they hold something."""
    hosts_known = hosts.known(client)
    for queue in hosts.queues(client, QUEUES):
        depth = _depth(client, queue)
        is_left = not depth.host and not depth.is_shared and hosts_known != [""]
        if not is_left or depth.waiting or depth.in_flight or depth.delayed or depth.dead:
            yield depth


def _depth(client: redis.Redis, queue: str) -> QueueDepth:
    base = key(client, queue)
    now = redis_client.now(client)
    last = int(now) // BUCKET_S
    pipe = client.pipeline(transaction=False)
    pipe.llen(base)
    pipe.hlen(f"{base}.msgs")
    pipe.zcard(f"{base}.delayed")
    pipe.zcard(f"{base}.XQ")
    pipe.lrange(base, 0, OLDEST_SAMPLE - 1)
    pipe.mget([done_key(client, queue, last - back) for back in range(60 // BUCKET_S)])
    waiting, stored, delayed, dead, ids, done = pipe.execute()
    ages = [0.0]
    data: Any = client.hmget(f"{base}.msgs", ids) if ids else ()
    for content in data:
        with suppress(msgspec.DecodeError, KeyError, TypeError):
            ages.append(now - msgspec.msgpack.decode(content or b"")["message_timestamp"] / 1000)
    role, host = hosts.split(queue)
    return QueueDepth(
        name=queue,
        role=role,
        host=host,
        waiting=waiting,
        in_flight=max(0, stored - waiting - delayed),
        delayed=delayed,
        dead=dead,
        oldest_s=round(max(ages), 1),
        rate_per_minute=float(sum(int(count or 0) for count in done)),
    )
