"""Show that a worker process is alive, by keys in Redis that it renews, and read who is and what it serves.

Commands read it without importing dramatiq, so `shared.queue.middleware` makes the heartbeat a middleware.

<fleet>:workers           set of the ids below; an id whose key is gone is dropped by the next reader
                                    (a SCAN for them would walk over everything else that Redis holds)
<fleet>:worker:<id>       string: its `WorkerInfo` in MessagePack              (gone after TTL_S)
<fleet>:serving:<queue>   string, there while a worker takes messages from the queue
                                                                             (gone after TTL_S)
<fleet>:drain:<id>        string, there when the worker is asked to end      (gone after DRAIN_TTL_S)
<fleet>:worker.failure    string: why a worker ended by itself of late         (gone after FAILURE_TTL_S)
<fleet>:done:<queue>:<n>  messages finished in the n-th ten seconds of the epoch, of all workers
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
from typing import TYPE_CHECKING, Any

import msgspec

from memline.shared.config.config_file import SettingsFile
from memline.shared.errors import BadRequest, QueueError
from memline.shared.logs import Log
from memline.shared.queue import redis_client
from memline.shared.queue.messages import agent_of
from memline.shared.queue.redis_client import key
from memline.shared.version import own_version
from memline.shared.words import counted

if TYPE_CHECKING:
    from redis import Redis

#: Seconds between two heartbeats.
HEARTBEAT_S = 2.0

#: The same while a worker ends that was asked to.
DRAINING_S = 0.2

#: Seconds after which a silent process counts as gone.
TTL_S = 10

#: Seconds that the failure of a worker is told.
FAILURE_TTL_S = 600

#: Seconds that a request to end is kept: one heartbeat is enough.
DRAIN_TTL_S = 60

#: Seconds counted together for the rate of a queue.
BUCKET_S = 10

#: Seconds that those counts are kept.
KEPT_S = 600


class CurrentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a worker is working on."""

    id: str
    queue: str
    actor: str
    agent: str
    #: Seconds since the epoch, by the worker's clock.
    since: float


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
    last_seen: float
    #: Seconds its threads have spent on messages since it started, all added up.
    busy_s: float
    #: What its threads work on at this moment, the oldest first.
    current: tuple[CurrentMessage, ...] = ()
    #: Bytes of memory that it occupies; 0: not known.
    rss_bytes: int = 0
    #: It was asked to end: it takes no more messages, and finishes those in hand.
    is_draining: bool = False
    #: Seconds that its clock is ahead of that of Redis.
    skew_s: float = 0.0
    #: Its configuration file, when it was changed after the worker had read it; else empty.
    newer_file: str = ""
    #: Seconds since its last heartbeat, for those who read it.
    silent_s: float = 0.0

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
            "lastSeenSeconds": round(self.silent_s, 1),
            "threadsBusy": len(self.current),
            "current": [
                {
                    "id": each.id,
                    "queue": each.queue,
                    "actor": each.actor,
                    "agent": each.agent,
                    "ageSeconds": round(max(0.0, self.last_seen - each.since), 1),
                }
                for each in self.current
            ],
            "memoryBytes": self.rss_bytes or None,
            "draining": self.is_draining,
            "oldSettings": bool(self.newer_file),
            "clockAheadSeconds": round(self.skew_s, 1),
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
    pipe = client.pipeline(transaction=False)
    for worker_id in ids:
        pipe.pttl(key(client, f"worker:{worker_id.decode()}"))
    # By the time that its key has left: no two clocks are compared.
    silent: Any = [max(0.0, TTL_S - ttl / 1000) if ttl > 0 else 0.0 for ttl in pipe.execute()]
    workers = [
        msgspec.structs.replace(_WORKER.decode(content), silent_s=seconds)
        for content, seconds in zip(stored, silent, strict=True)
        if content
    ]
    return sorted(workers, key=lambda worker: (worker.queues, worker.host, worker.pid))


def embed_threads(client: Redis) -> int:
    """Count the threads of all live worker processes that embed."""
    alive = live_workers(client)
    return sum(worker.threads_of.get("embed", 0) for worker in alive if not worker.is_draining)


def drain(url: str, name: str) -> WorkerInfo:
    """Ask a worker process to take no more messages, finish those in hand and end; returns which it is.

    `name`: the beginning of its id, HOST:PID, or its pid. Raises BadRequest when that means none, or several.
    """
    with redis_client.connected(url) as client:
        alive = live_workers(client)
        found = [each for each in alive if name and each.id.startswith(name)]
        found = found or [each for each in alive if name in (f"{each.host}:{each.pid}", str(each.pid))]
        if len(found) != 1:
            known = ", ".join(f"{each.host}:{each.pid}" for each in alive) or "none"
            count = f"{counted(len(found), 'worker', 'are')} called" if found else "there is no worker"
            raise BadRequest(f"{count} {name[:80]!r}", hint=f"memline queue; alive: {known}")
        client.set(drain_key(client, found[0].id), 1, ex=DRAIN_TTL_S)
    return found[0]


def drain_key(client: Redis, worker_id: str) -> str:
    """Name the key that asks a worker process to end."""
    return key(client, f"drain:{worker_id}")


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
        file: SettingsFile | None = None,
    ) -> None:
        """Begin to tell that the queues of these roles are served, each with so many threads.

        `on_drain` is called at each heartbeat once this worker was asked to end. `file` has its
        settings.
        """
        args = (url, worker_id, threads_of, on_drain, file or SettingsFile())
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
            # By which the queue has it; another one at each try.
            id=message.options.get("redis_message_id", message.message_id),
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
        self,
        url: str,
        worker_id: str,
        threads_of: Mapping[str, int],
        on_drain: Callable[[], None],
        file: SettingsFile,
    ) -> None:
        started = time.time()
        # A connection of its own: the others may be busy.
        client = redis_client.client(url)
        ours = key(client, f"worker:{worker_id}")
        skew_s, newer_file = 0.0, ""
        while True:
            with suppress(QueueError), redis_client.translated(url):
                skew_s = time.time() - redis_client.now(client)
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
                last_seen=time.time(),
                busy_s=sum(self._busy_s.values()),
                # A copy: the threads change it meanwhile.
                current=tuple(sorted((each for each, _ in [*self._current.values()]), key=_since)),
                rss_bytes=_rss_bytes(),
                is_draining=self._is_draining,
                skew_s=skew_s,
                newer_file=newer_file,
            )
            try:
                with redis_client.translated(url):
                    pipe = client.pipeline(transaction=False)
                    pipe.set(ours, msgspec.msgpack.encode(info), ex=TTL_S)
                    pipe.sadd(key(client, "workers"), worker_id)
                    for role in () if self._is_draining else threads_of:
                        pipe.set(serving_key(client, role), ours, ex=TTL_S)
                    done, self._done = self._done, Counter()
                    for queue, count in done.items():
                        bucket = done_key(client, queue, int(time.time() - skew_s) // BUCKET_S)
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
