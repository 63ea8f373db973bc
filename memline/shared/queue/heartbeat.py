"""Show that a worker process is alive, and read from Redis who is, and how much work lies on the queues.

    <fleet>:workers    hash: id of a worker -> its `WorkerInfo` in MessagePack, renewed every `HEARTBEAT_S`

Who was silent for `TTL_S`, by the clock of Redis, counts as gone; the next reader removes it.

dramatiq keeps every message in `<queue>.msgs` until it is acknowledged; the list `<queue>` holds the ids that
no worker has taken yet; the messages of `<queue>.DQ.msgs` wait for a retry. The rest is in flight.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import msgspec
from dramatiq.middleware import Middleware
from msgspec.structs import replace

from memline.shared.config.config_file import SettingsFile
from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.packages import own_version
from memline.shared.queue import redis_client
from memline.shared.queue.fleet import Fleet, QueueDepth, WorkerInfo
from memline.shared.queue.messages import ENVELOPES
from memline.shared.queue.redis_client import FleetClient
from memline.shared.queue.routes import QUEUES

#: Seconds between two heartbeats.
HEARTBEAT_S = 2.0

#: Seconds after which a silent process counts as gone.
TTL_S = 10

#: Seconds whose finished messages are counted.
RATE_S = 60.0


#: Made by the thread that imports this: two that make the shape at once end the process (`messages.py`).
_WORKER = msgspec.msgpack.Decoder(WorkerInfo)


def live_workers(client: FleetClient) -> list[WorkerInfo]:
    """List the worker processes that are alive, by role and machine."""
    stored: Any = client.hgetall(client.key("workers"))
    now, workers = redis_client.now(client), []
    for name, content in stored.items():
        worker = _WORKER.decode(content)
        if now - worker.seen > TTL_S:
            # Were it only slow, its next heartbeat would put it back.
            client.hdel(client.key("workers"), name)
        else:
            workers.append(worker)
    return sorted(workers, key=lambda worker: (worker.queues, worker.host, worker.pid))


class Heartbeat(Middleware):
    """Tells Redis that this worker process is alive, and what it has finished."""

    def __init__(
        self, address: QueueAddress, threads_of: Mapping[str, int], *, file: SettingsFile | None = None
    ) -> None:
        """Serve the queues of these roles, each with so many threads, by the settings of a file."""
        # A connection of its own, which does not wait for long: the others may be busy.
        self._client = redis_client.client(address, looks=True)
        self._file = file or SettingsFile()
        self._info = WorkerInfo(
            id=uuid.uuid4().hex,
            threads_of=dict(threads_of),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=own_version(),
            started=time.time(),
        )
        self._due = 0.0
        #: When each message of the last minute was finished (monotonic seconds), and its queue.
        self._done: deque[tuple[float, str]] = deque()

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        """Count a message that was finished."""
        if exception is None:
            self._done.append((time.monotonic(), message.queue_name))

    def beat(self) -> None:
        """Tell it, when that is due."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + HEARTBEAT_S
        newer_file = self._file.newer()
        if newer_file and not self._info.newer_file:
            Log("settings").warning("settings.old", file=newer_file)
        while self._done and self._done[0][0] < now - RATE_S:
            self._done.popleft()
        done = dict(Counter(queue for _, queue in tuple(self._done)))
        try:
            seen = redis_client.now(self._client)
            self._info = replace(self._info, seen=seen, newer_file=newer_file, done=done)
            content = msgspec.msgpack.encode(self._info)
            self._client.hset(self._client.key("workers"), self._info.id, content)
        except QueueError as error:
            # The consumers say the same and wait; one heartbeat too few is no loss.
            Log("heartbeat").debug("heartbeat.failed", error=error.message)

    def close(self) -> None:
        """Tell that this process is gone."""
        with closing(self._client), suppress(QueueError):
            self._client.hdel(self._client.key("workers"), self._info.id)


def read_fleet(client: FleetClient) -> Fleet:
    """Read the state of all queues. Raises QueueError when Redis cannot be asked."""
    memory: Any = client.info("memory")
    workers = tuple(live_workers(client))
    return Fleet(
        queues=tuple(_depths(client, workers)),
        workers=workers,
        error=redis_client.trouble(client, memory),
    )


def _depths(client: FleetClient, workers: Sequence[WorkerInfo]) -> Iterator[QueueDepth]:
    for queue in QUEUES:
        base = client.key(queue)
        pipe = client.pipeline(transaction=False)
        pipe.llen(base)
        pipe.hlen(f"{base}.msgs")
        pipe.hlen(f"{base}.DQ.msgs")
        pipe.zcard(f"{base}.XQ")
        pipe.lindex(base, 0)
        waiting, stored, delayed, dead, first = client.execute(pipe)
        content: Any = client.hget(f"{base}.msgs", first) if first else None
        oldest_s = 0.0
        with suppress(msgspec.DecodeError):
            oldest_s = time.time() - ENVELOPES.decode(content or b"").message_timestamp / 1000
        yield QueueDepth(
            name=queue,
            waiting=waiting,
            in_flight=max(0, stored - waiting),
            delayed=delayed,
            dead=dead,
            oldest_s=round(max(oldest_s, 0.0), 1),
            rate_per_minute=float(sum(worker.done.get(queue, 0) for worker in workers)),
        )
