"""Tell which worker processes are alive, and which queues are served: each renews keys by a heartbeat.

<fleet>:workers           set of the ids below; an id whose key is gone is dropped by the next reader
                                    (a SCAN for them would walk over everything else that Redis holds)
<fleet>:worker:<id>       string: its `WorkerInfo` in MessagePack              (gone after TTL_S)
<fleet>:serving:<queue>   string, there while a worker takes messages from the queue
                                                                             (gone after TTL_S)
<fleet>:worker.failure    string: why a worker ended by itself of late         (gone after FAILURE_TTL_S)
<fleet>:done:<queue>:<n>  messages finished in the n-th ten seconds of the epoch, of all workers
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from memline.shared.queue.redis_client import key

if TYPE_CHECKING:
    from redis import Redis

#: Seconds after which a silent process counts as gone.
TTL_S = 10

#: Seconds that the failure of a worker is told.
FAILURE_TTL_S = 600

#: Seconds counted together for the rate of a queue.
BUCKET_S = 10


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a worker process, by its last heartbeat."""

    id: str
    #: Queue -> messages of it that the process works on at a time.
    threads_of: dict[str, int]
    host: str
    pid: int
    version: str
    #: Seconds since the epoch.
    started: float
    last_seen: float
    #: Seconds its threads have spent on messages since it started, all added up.
    busy_s: float

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self.threads_of)

    @property
    def threads(self) -> int:
        return sum(self.threads_of.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "role": "+".join(self.queues),
            "queues": list(self.queues),
            "host": self.host,
            "pid": self.pid,
            "version": self.version,
            "threads": self.threads,
            "busySeconds": round(self.busy_s, 1),
            "started": self.started,
            "lastSeenSeconds": round(max(0.0, time.time() - self.last_seen), 1),
        }


def live_workers(client: Redis) -> list[WorkerInfo]:
    """List the worker processes that are alive, by queue and host."""
    ids: Any = client.smembers(key(client, "workers"))
    stored: Any = (
        client.mget([key(client, f"worker:{worker_id.decode()}") for worker_id in ids]) if ids else ()
    )
    gone = [worker_id for worker_id, content in zip(ids, stored, strict=True) if content is None]
    if gone:
        # Killed ones. Were one only slow, its next heartbeat would put it back.
        client.srem(key(client, "workers"), *gone)
    workers = [msgspec.msgpack.decode(content, type=WorkerInfo) for content in stored if content]
    return sorted(workers, key=lambda worker: (worker.queues, worker.host, worker.pid))


def threads_serving(client: Redis, queue: str) -> int:
    """Count the threads of all live worker processes that take messages from `queue`."""
    return sum(worker.threads_of.get(queue, 0) for worker in live_workers(client))


def is_served(client: Redis, queue: str) -> bool:
    """Tell whether a live worker process takes messages from `queue`; one command."""
    return bool(client.exists(serving_key(client, queue)))


def serving_key(client: Redis, queue: str) -> str:
    """Name the key that is there while a worker process takes messages from `queue`."""
    return key(client, f"serving:{queue}")


def last_failure(client: Redis) -> str:
    """Say why a worker ended by itself in the last minutes; empty when none did."""
    text: Any = client.get(key(client, "worker.failure"))
    return (text or b"").decode()


def done_key(client: Redis, queue: str, bucket: int) -> str:
    """Name the key that counts the messages of a queue that were finished in a bucket of time."""
    return key(client, f"done:{queue}:{bucket}")
