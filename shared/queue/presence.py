"""Which worker processes are alive: each writes a key of its own, with an end, and renews it.

It also tells which queues are served, which one command can ask.

    memline:worker:<id>       hash: queues, host, pid, version, started, seen   (gone after TTL_S)
    memline:serving:<queue>   set while somebody takes messages from the queue  (gone after TTL_S)
    memline:done:<queue>:<n>  messages finished in the n-th ten seconds of the epoch, of all workers
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import dramatiq
import redis
from dramatiq.middleware import Middleware

from shared.logs import Log
from shared.queue import server
from shared.queue.fleet import NAMESPACE, FleetBroker

#: Seconds between two signs of life, and after which a silent process counts as gone.
BEAT_S = 2.0
TTL_S = 10

#: Seconds counted together for the rate of a queue.
BUCKET_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker process, as it told of itself."""

    id: str
    queues: tuple[str, ...]
    host: str
    pid: int
    version: str
    #: Seconds since the epoch.
    started: float
    seen: float

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "role": "+".join(self.queues),
            "queues": list(self.queues),
            "host": self.host,
            "pid": self.pid,
            "version": self.version,
            "started": self.started,
            "lastSeenSeconds": round(max(0.0, time.time() - self.seen), 1),
        }


class Presence(Middleware):
    """Tells that this worker process is alive, from its start to its end."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = Log("presence")
        #: Finished messages that Redis has not been told of yet, by queue; `+=` under the interpreter lock
        #: may lose one in a race, which a rate can bear.
        self._done: Counter[str] = Counter()

    def after_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        assert isinstance(broker, FleetBroker)
        queues = sorted(worker.consumer_whitelist or broker.get_declared_queues())
        self._thread = threading.Thread(
            target=self._beat, args=(broker, queues), name="presence", daemon=True
        )
        self._thread.start()

    def after_process_message(
        self,
        broker: dramatiq.Broker,
        message: dramatiq.broker.MessageProxy,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        if exception is None:
            self._done[message.queue_name] += 1

    def before_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self, broker: FleetBroker, queues: list[str]) -> None:
        key = f"{NAMESPACE}:worker:{broker.broker_id}"
        started = time.time()
        own = server.client(broker.url)
        while True:
            fields: dict[Any, Any] = {
                "queues": ",".join(queues),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "version": _version(),
                "started": started,
                "seen": time.time(),
            }
            try:
                pipe = own.pipeline(transaction=False)
                pipe.hset(key, mapping=fields)
                pipe.expire(key, TTL_S)
                for queue in queues:
                    pipe.set(_serving(queue), key, ex=TTL_S)
                done, self._done = self._done, Counter()
                for queue, count in done.items():
                    bucket = done_key(queue, int(time.time()) // BUCKET_S)
                    pipe.incrby(bucket, count)
                    pipe.expire(bucket, 120)
                pipe.execute()
            except redis.RedisError as error:
                # The consumers say the same and wait; a sign of life too few is no loss.
                self._log.debug("presence.failed", error=str(error))
            if self._stop.wait(BEAT_S):
                break
        try:
            own.delete(key)
        except redis.RedisError as error:
            self._log.debug("presence.failed", error=str(error))
        own.close()


def workers_seen(client: redis.Redis) -> list[WorkerSeen]:
    """The worker processes that are alive, by queue and host."""
    found = []
    for key in client.scan_iter(match=f"{NAMESPACE}:worker:*", count=500):
        stored: dict[Any, Any] = client.hgetall(key)
        fields = {name.decode(): value.decode() for name, value in stored.items()}
        if "seen" not in fields:
            continue
        found.append(
            WorkerSeen(
                id=key.decode().rsplit(":", 1)[1],
                queues=tuple(fields["queues"].split(",")),
                host=fields["host"],
                pid=int(fields["pid"]),
                version=fields["version"],
                started=float(fields["started"]),
                seen=float(fields["seen"]),
            )
        )
    return sorted(found, key=lambda one: (one.queues, one.host, one.pid))


def is_served(client: redis.Redis, queue: str) -> bool:
    """Whether some worker process that is alive takes messages from `queue`; one command."""
    return bool(client.exists(_serving(queue)))


def done_key(queue: str, bucket: int) -> str:
    """The key that counts the messages of a queue that were finished in a bucket of time."""
    return f"{NAMESPACE}:done:{queue}:{bucket}"


def _serving(queue: str) -> str:
    return f"{NAMESPACE}:serving:{queue}"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("memline")
    except PackageNotFoundError:
        return "source"
