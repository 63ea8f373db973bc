"""Register the worker processes that are alive: each renews a key of its own by a heartbeat.

It also tells which queues are served, which one command can ask.

    <fleet>:workers           set of the ids below; an id whose key is gone is dropped by the next reader
                                        (a SCAN for them would walk over everything else that Redis holds)
    <fleet>:worker:<id>       string: its `WorkerInfo` in MessagePack              (gone after TTL_S)
    <fleet>:serving:<queue>   string, there while a worker takes messages from the queue
                                                                                 (gone after TTL_S)
    <fleet>:worker.failure    string: why a worker ended by itself of late         (gone after FAILURE_TTL_S)
    <fleet>:done:<queue>:<n>  messages finished in the n-th ten seconds of the epoch, of all workers
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from dramatiq.middleware import Middleware

from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.queue import redis_client
from memline.shared.queue.redis_client import key
from memline.shared.version import own_version

if TYPE_CHECKING:
    from redis import Redis

#: Seconds between two heartbeats, and after which a silent process counts as gone.
HEARTBEAT_S = 2.0
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


class Heartbeat(Middleware):
    """Tells Redis that this worker process is alive, from its start to its end, and what it has finished."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: Finished messages that Redis has not been told of yet, by queue; `+=` under the interpreter lock
        #: may lose one in a race, which a rate can bear.
        self._done: Counter[str] = Counter()
        self._working = threading.local()
        #: By thread, so that no two of them add to one number.
        self._busy_s: Counter[int] = Counter()
        self._failure = ""

    def start(self, url: str, worker_id: str, threads_of: Mapping[str, int]) -> None:
        """Begin to tell that these queues are served, each with so many threads."""
        args = (url, worker_id, threads_of)
        self._thread = threading.Thread(target=self._run, args=args, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self, failure: str = "") -> None:
        """Tell that this process is gone, and why if it ends by itself."""
        self._failure = failure
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def before_process_message(self, broker: Any, message: Any) -> None:
        self._working.since = time.monotonic()

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        self._busy_s[threading.get_ident()] += time.monotonic() - self._working.since
        if exception is None:
            self._done[message.queue_name] += 1

    def _run(self, url: str, worker_id: str, threads_of: Mapping[str, int]) -> None:
        started = time.time()
        # A connection of its own: the others may be busy.
        client = redis_client.client(url)
        ours = key(client, f"worker:{worker_id}")
        while True:
            info = WorkerInfo(
                id=worker_id,
                threads_of=dict(threads_of),
                host=socket.gethostname(),
                pid=os.getpid(),
                version=own_version(),
                started=started,
                last_seen=time.time(),
                busy_s=sum(self._busy_s.values()),
            )
            try:
                with redis_client.translated(url):
                    pipe = client.pipeline(transaction=False)
                    pipe.set(ours, msgspec.msgpack.encode(info), ex=TTL_S)
                    pipe.sadd(key(client, "workers"), worker_id)
                    for queue in threads_of:
                        pipe.set(key(client, f"serving:{queue}"), ours, ex=TTL_S)
                    done, self._done = self._done, Counter()
                    for queue, count in done.items():
                        bucket = done_key(client, queue, int(time.time()) // BUCKET_S)
                        pipe.incrby(bucket, count)
                        pipe.expire(bucket, 120)
                    pipe.execute()
            except QueueError as error:
                # The consumers say the same and wait; one heartbeat too few is no loss.
                Log("heartbeat").debug("heartbeat.failed", error=error.message)
            if self._stop.wait(HEARTBEAT_S):
                break
        with suppress(QueueError), redis_client.translated(url):
            client.delete(ours)
            client.srem(key(client, "workers"), worker_id)
            if self._failure:
                text = f"{socket.gethostname()}: {self._failure}"
                client.set(key(client, "worker.failure"), text, ex=FAILURE_TTL_S)
        client.close()


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
    return bool(client.exists(key(client, f"serving:{queue}")))


def last_failure(client: Redis) -> str:
    """Say why a worker ended by itself in the last minutes; empty when none did."""
    text: Any = client.get(key(client, "worker.failure"))
    return (text or b"").decode()


def done_key(client: Redis, queue: str, bucket: int) -> str:
    """Name the key that counts the messages of a queue that were finished in a bucket of time."""
    return key(client, f"done:{queue}:{bucket}")
