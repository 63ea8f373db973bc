"""Which worker processes are alive: each writes a key of its own, with an end, and renews it.

It also tells which queues are served, which one command can ask.

    memline:workers           set of the ids below; an id whose hash is gone is dropped by who notices
    memline:worker:<id>       hash: queues, host, pid, version, threads, started, seen, busy
                                                                                 (gone after TTL_S)
    memline:serving:<queue>   string, there while somebody takes messages from the queue
                                                                                 (gone after TTL_S)
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

#: The ids of all workers: a SCAN for their keys would walk over everything else that Redis holds.
WORKERS = f"{NAMESPACE}:workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker process, as it told of itself."""

    id: str
    queues: tuple[str, ...]
    host: str
    pid: int
    version: str
    #: Messages it can work on at a time.
    threads: int
    #: Seconds since the epoch.
    started: float
    seen: float
    #: Seconds its threads have spent on messages since it started, all added up.
    busy_s: float

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
        self._working = threading.local()
        #: By thread, so that no two of them add to one number.
        self._busy_s: Counter[int] = Counter()

    def after_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        assert isinstance(broker, FleetBroker)
        queues = sorted(worker.consumer_whitelist or broker.get_declared_queues())
        self._thread = threading.Thread(
            target=self._beat, args=(broker, queues, worker.worker_threads), name="presence", daemon=True
        )
        self._thread.start()

    def before_process_message(self, broker: dramatiq.Broker, message: dramatiq.broker.MessageProxy) -> None:
        self._working.since = time.monotonic()

    def after_process_message(
        self,
        broker: dramatiq.Broker,
        message: dramatiq.broker.MessageProxy,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        self._busy_s[threading.get_ident()] += time.monotonic() - self._working.since
        if exception is None:
            self._done[message.queue_name] += 1

    def before_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self, broker: FleetBroker, queues: list[str], threads: int) -> None:
        key = _key(broker.broker_id)
        started = time.time()
        own = server.client(broker.url)
        while True:
            fields: dict[Any, Any] = {
                "queues": ",".join(queues),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "version": _version(),
                "threads": threads,
                "started": started,
                "seen": time.time(),
                "busy": sum(self._busy_s.values()),
            }
            try:
                pipe = own.pipeline(transaction=False)
                pipe.hset(key, mapping=fields)
                pipe.expire(key, TTL_S)
                pipe.sadd(WORKERS, broker.broker_id)
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
            own.srem(WORKERS, broker.broker_id)
        except redis.RedisError as error:
            self._log.debug("presence.failed", error=str(error))
        own.close()


def workers_seen(client: redis.Redis) -> list[WorkerSeen]:
    """The worker processes that are alive, by queue and host."""
    ids: Any = client.smembers(WORKERS)
    pipe = client.pipeline(transaction=False)
    for worker_id in ids:
        pipe.hgetall(_key(worker_id.decode()))
    found = []
    for worker_id, stored in zip(ids, pipe.execute() if ids else (), strict=True):
        fields = {name.decode(): value.decode() for name, value in stored.items()}
        if "seen" not in fields:
            # It was killed. Were it only slow, its next sign of life would put it back.
            client.srem(WORKERS, worker_id)
            continue
        found.append(
            WorkerSeen(
                id=worker_id.decode(),
                queues=tuple(fields["queues"].split(",")),
                host=fields["host"],
                pid=int(fields["pid"]),
                version=fields["version"],
                threads=int(fields.get("threads", 1)),
                started=float(fields["started"]),
                seen=float(fields["seen"]),
                busy_s=float(fields.get("busy", 0)),
            )
        )
    return sorted(found, key=lambda one: (one.queues, one.host, one.pid))


def threads_serving(client: redis.Redis, queue: str) -> int:
    """Threads of all worker processes alive that take messages from `queue`."""
    return sum(one.threads for one in workers_seen(client) if queue in one.queues)


def is_served(client: redis.Redis, queue: str) -> bool:
    """Whether some worker process that is alive takes messages from `queue`; one command."""
    return bool(client.exists(_serving(queue)))


def done_key(queue: str, bucket: int) -> str:
    """The key that counts the messages of a queue that were finished in a bucket of time."""
    return f"{NAMESPACE}:done:{queue}:{bucket}"


def _key(worker_id: str) -> str:
    return f"{NAMESPACE}:worker:{worker_id}"


def _serving(queue: str) -> str:
    return f"{NAMESPACE}:serving:{queue}"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("memline")
    except PackageNotFoundError:
        return "source"
