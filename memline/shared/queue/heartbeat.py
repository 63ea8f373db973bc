"""Show that a worker process is alive, by keys in Redis that it renews, and read who is and what it serves.

Commands read it without importing dramatiq, so `shared.queue.middleware` makes the heartbeat a middleware.

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

from memline.shared.config.config_file import SettingsFile
from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.queue import redis_client
from memline.shared.queue.redis_client import key
from memline.shared.version import own_version

if TYPE_CHECKING:
    from redis import Redis

#: Seconds between two heartbeats.
HEARTBEAT_S = 2.0

#: Seconds after which a silent process counts as gone.
TTL_S = 10

#: Seconds that the failure of a worker is told.
FAILURE_TTL_S = 600

#: Seconds counted together for the rate of a queue.
BUCKET_S = 10

#: Seconds that those counts are kept.
KEPT_S = 120


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a worker process, by its last heartbeat."""

    id: str
    #: Role -> messages of its queue that the process works on at a time.
    threads_of: dict[str, int]
    #: The machine it runs on.
    host: str
    pid: int
    version: str
    #: Seconds since the epoch.
    started: float
    #: Its configuration file, when it was changed after the worker had read it; else empty.
    newer_file: str = ""

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
            "started": self.started,
            "oldSettings": bool(self.newer_file),
        }


#: Made by the thread that imports this: two that make the shape at once end the process (`messages.py`).
_WORKER = msgspec.msgpack.Decoder(WorkerInfo)


def live_workers(client: Redis) -> list[WorkerInfo]:
    """List the worker processes that are alive, by role and machine."""
    ids: Any = client.smembers(key(client, "workers"))
    stored: Any = (
        client.mget([key(client, f"worker:{worker_id.decode()}") for worker_id in ids]) if ids else ()
    )
    gone = [worker_id for worker_id, content in zip(ids, stored, strict=True) if content is None]
    if gone:
        # Killed ones. Were one only slow, its next heartbeat would put it back.
        client.srem(key(client, "workers"), *gone)
    workers = [_WORKER.decode(content) for content in stored if content]
    return sorted(workers, key=lambda worker: (worker.queues, worker.host, worker.pid))


def embed_threads(client: Redis) -> int:
    """Count the threads of all live worker processes that embed."""
    return sum(worker.threads_of.get("embed", 0) for worker in live_workers(client))


def serving_key(client: Redis, queue: str) -> str:
    """Name the key that is there while a worker process takes messages from `queue`."""
    return key(client, f"serving:{queue}")


def is_served(client: Redis, queue: str) -> bool:
    """Tell whether a live worker process takes messages from `queue`; one command."""
    return bool(client.exists(serving_key(client, queue)))


def last_failure(client: Redis) -> str:
    """Say why a worker ended by itself in the last minutes; empty when none did."""
    text: Any = client.get(key(client, "worker.failure"))
    return (text or b"").decode()


def done_key(client: Redis, queue: str, bucket: int) -> str:
    """Name the key that counts the messages of a queue that were finished in a bucket of time."""
    return key(client, f"done:{queue}:{bucket}")


class Heartbeat:
    """Tells Redis that this worker process is alive, from its start to its end, and what it has finished."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: Finished messages that Redis has not been told of yet, by queue; `+=` under the interpreter lock
        #: may lose one in a race, which a rate can bear.
        self._done: Counter[str] = Counter()
        self._failure = ""

    def start(
        self,
        url: str,
        worker_id: str,
        threads_of: Mapping[str, int],
        *,
        file: SettingsFile | None = None,
    ) -> None:
        """Begin to tell that the queues of these roles are served, each with so many threads.

        `file` has the settings of this process.
        """
        args = (url, worker_id, threads_of, file or SettingsFile())
        self._thread = threading.Thread(target=self._run, args=args, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self, failure: str = "") -> None:
        """Tell that this process is gone, and why if it ends by itself."""
        self._failure = failure
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        if exception is None:
            self._done[message.queue_name] += 1

    def _run(self, url: str, worker_id: str, threads_of: Mapping[str, int], file: SettingsFile) -> None:
        started = time.time()
        # A connection of its own: the others may be busy.
        client = redis_client.client(url)
        ours = key(client, f"worker:{worker_id}")
        newer_file = ""
        while True:
            was_newer, newer_file = newer_file, file.newer()
            if newer_file and not was_newer:
                Log("settings").warning("settings.old", file=newer_file)
            info = WorkerInfo(
                id=worker_id,
                threads_of=dict(threads_of),
                host=socket.gethostname(),
                pid=os.getpid(),
                version=own_version(),
                started=started,
                newer_file=newer_file,
            )
            try:
                with redis_client.translated(url):
                    bucket = int(redis_client.now(client)) // BUCKET_S
                    pipe = client.pipeline(transaction=False)
                    pipe.set(ours, msgspec.msgpack.encode(info), ex=TTL_S)
                    pipe.sadd(key(client, "workers"), worker_id)
                    for role in threads_of:
                        pipe.set(serving_key(client, role), ours, ex=TTL_S)
                    done, self._done = self._done, Counter()
                    for queue, count in done.items():
                        pipe.incrby(done_key(client, queue, bucket), count)
                        pipe.expire(done_key(client, queue, bucket), KEPT_S)
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
