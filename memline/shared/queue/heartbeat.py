"""Show that this worker process is alive: its own key in Redis and those of its queues, renewed as it runs.

`worker_registry` lists the keys and reads them; commands do that without importing dramatiq.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from dramatiq.middleware import Middleware

from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.queue import redis_client
from memline.shared.queue.hosts import queue_of
from memline.shared.queue.messages import agent_of
from memline.shared.queue.redis_client import key, own_host
from memline.shared.queue.worker_registry import (
    BUCKET_S,
    FAILURE_TTL_S,
    KEPT_S,
    TTL_S,
    CurrentMessage,
    WorkerInfo,
    done_key,
    drain_key,
    serving_key,
)
from memline.shared.version import own_version

#: Seconds between two heartbeats.
HEARTBEAT_S = 2.0

#: The same while a worker ends that was asked to.
DRAINING_S = 0.2


class Heartbeat(Middleware):
    """Tells Redis that this worker process is alive, from its start to its end, and what it has finished."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: Finished messages that Redis has not been told of yet, by queue; `+=` under the interpreter lock
        #: may lose one in a race, which a rate can bear.
        self._done: Counter[str] = Counter()
        #: Thread -> what it works on, and since when (monotonic seconds).
        self._current: dict[int, tuple[CurrentMessage, float]] = {}
        #: By thread, so that no two of them add to one number.
        self._busy_s: defaultdict[int, float] = defaultdict(float)
        self._failure = ""
        self._is_draining = False

    def start(
        self,
        url: str,
        worker_id: str,
        threads_of: Mapping[str, int],
        *,
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to tell that the queues of these roles are served, each with so many threads.

        `on_drain` is called at each heartbeat once this worker was asked to end.
        """
        args = (url, worker_id, threads_of, on_drain)
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
        return max((now - since for _, since in [*self._current.values()]), default=0.0)

    def before_process_message(self, broker: Any, message: Any) -> None:
        current = CurrentMessage(
            id=message.message_id,
            queue=message.queue_name,
            actor=message.actor_name,
            agent=agent_of(message.args),
            since=time.time(),
        )
        self._current[threading.get_ident()] = current, time.monotonic()

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        thread = threading.get_ident()
        # Not begun where another middleware refused it.
        if begun := self._current.pop(thread, None):
            self._busy_s[thread] += time.monotonic() - begun[1]
        if exception is None:
            self._done[message.queue_name] += 1

    def after_skip_message(self, broker: Any, message: Any) -> None:
        self._current.pop(threading.get_ident(), None)

    def _run(
        self, url: str, worker_id: str, threads_of: Mapping[str, int], on_drain: Callable[[], None]
    ) -> None:
        started = time.time()
        # A connection of its own: the others may be busy.
        client = redis_client.client(url)
        ours = key(client, f"worker:{worker_id}")
        while True:
            info = WorkerInfo(
                id=worker_id,
                threads_of=dict(threads_of),
                host=socket.gethostname(),
                index_host=own_host(client),
                pid=os.getpid(),
                version=own_version(),
                started=started,
                last_seen=time.time(),
                busy_s=sum(self._busy_s.values()),
                # A copy: the threads change it meanwhile.
                current=tuple(sorted((each for each, _ in [*self._current.values()]), key=_since)),
                rss_bytes=_rss_bytes(),
                is_draining=self._is_draining,
            )
            try:
                with redis_client.translated(url):
                    pipe = client.pipeline(transaction=False)
                    pipe.set(ours, msgspec.msgpack.encode(info), ex=TTL_S)
                    pipe.sadd(key(client, "workers"), worker_id)
                    for role in () if self._is_draining else threads_of:
                        pipe.set(serving_key(client, queue_of(client, role)), ours, ex=TTL_S)
                    done, self._done = self._done, Counter()
                    for queue, count in done.items():
                        bucket = done_key(client, queue, int(time.time()) // BUCKET_S)
                        pipe.incrby(bucket, count)
                        pipe.expire(bucket, KEPT_S + 2 * BUCKET_S)
                    pipe.exists(drain_key(client, worker_id))
                    if pipe.execute()[-1] and not self._is_draining:
                        Log("worker").info("worker.drains", queues=",".join(threads_of))
                        self._is_draining = True
            except QueueError as error:
                # The consumers say the same and wait; one heartbeat too few is no loss.
                Log("heartbeat").debug("heartbeat.failed", error=error.message)
            if self._is_draining:
                on_drain()
            if self._stop.wait(DRAINING_S if self._is_draining else HEARTBEAT_S):
                break
        with suppress(QueueError), redis_client.translated(url):
            client.delete(ours, drain_key(client, worker_id))
            client.srem(key(client, "workers"), worker_id)
            if self._failure:
                text = f"{socket.gethostname()}: {self._failure}"
                client.set(key(client, "worker.failure"), text, ex=FAILURE_TTL_S)
        client.close()


_since = attrgetter("since")


def _rss_bytes() -> int:
    """Return the memory that this process occupies; 0 where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
