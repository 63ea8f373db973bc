"""Show that this worker process is alive: its own key in Redis and those of its queues, renewed as it runs.

`worker_registry` lists the keys and reads them; commands do that without importing dramatiq.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from dramatiq.middleware import Middleware

from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.queue import redis_client
from memline.shared.queue.redis_client import key
from memline.shared.queue.worker_registry import (
    BUCKET_S,
    FAILURE_TTL_S,
    TTL_S,
    WorkerInfo,
    done_key,
    serving_key,
)
from memline.shared.version import own_version

#: Seconds between two heartbeats.
HEARTBEAT_S = 2.0


class Heartbeat(Middleware):
    """Tells Redis that this worker process is alive, from its start to its end, and what it has finished."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: Finished messages that Redis has not been told of yet, by queue; `+=` under the interpreter lock
        #: may lose one in a race, which a rate can bear.
        self._done: Counter[str] = Counter()
        #: Thread -> when it began with the message it works on (monotonic seconds).
        self._since: dict[int, float] = {}
        #: By thread, so that no two of them add to one number.
        self._busy_s: defaultdict[int, float] = defaultdict(float)
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

    def longest_s(self) -> float:
        """Return for how many seconds the message has been worked on that takes longest."""
        now = time.monotonic()
        return max((now - since for since in list(self._since.values())), default=0.0)

    def before_process_message(self, broker: Any, message: Any) -> None:
        self._since[threading.get_ident()] = time.monotonic()

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        thread = threading.get_ident()
        # Not begun where another middleware refused it.
        if since := self._since.pop(thread, None):
            self._busy_s[thread] += time.monotonic() - since
        if exception is None:
            self._done[message.queue_name] += 1

    def after_skip_message(self, broker: Any, message: Any) -> None:
        self._since.pop(threading.get_ident(), None)

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
                        pipe.set(serving_key(client, queue), ours, ex=TTL_S)
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
