"""The state of a fleet: its queues and its workers, as Redis has them, kept for half a second: many ask.

dramatiq keeps every message in `<queue>.msgs` until it is acknowledged; the list `<queue>` holds the ids that
no worker has taken yet; the messages of `<queue>.DQ.msgs` wait for a retry. The rest is in flight.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from memline.shared.config.installation import QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import QueueError
from memline.shared.finding import GOOD_FOR_S
from memline.shared.queue.messages import ENVELOPES
from memline.shared.queue.routes import QUEUES, needed_roles

#: Seconds after which a silent process counts as gone.
TTL_S = 10


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
    #: When it gave its last heartbeat, by the clock of Redis.
    seen: float = 0.0
    #: Its configuration file, when it was changed after the worker had read it; else empty.
    newer_file: str = ""

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self.threads_of)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "role": "+".join(self.queues),
            "queues": list(self.queues),
            "host": self.host,
            "pid": self.pid,
            "version": self.version,
            "threads": sum(self.threads_of.values()),
            "started": self.started,
            "oldSettings": bool(self.newer_file),
        }


class QueueDepth(
    msgspec.Struct, frozen=True, kw_only=True, rename={"in_flight": "inFlight", "oldest_s": "oldestSeconds"}
):
    """One queue at one moment; its names in JSON are those of `memline queue --json`."""

    #: Also of the role that serves it.
    name: str
    #: Not taken by a worker yet.
    waiting: int
    #: Taken and not acknowledged.
    in_flight: int
    #: Waiting for a retry.
    delayed: int
    dead: int
    #: Age of the message that waits first, which is the oldest but for one that was put back; 0 without one.
    oldest_s: float


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Queues and workers of a fleet at one moment; empty where Redis does not answer."""

    queues: tuple[QueueDepth, ...] = ()
    workers: tuple[WorkerInfo, ...] = ()
    #: Why Redis does not answer, refuses messages or may lose them.
    error: QueueError | None = None

    @property
    def dead(self) -> int:
        """The messages that failed for good."""
        return sum(each.dead for each in self.queues)

    def missing(self, agents: Iterable[AgentSettings]) -> tuple[str, ...]:
        """Name the roles that these agents need and no worker has.

        None is known while Redis has an error: without memory it takes no heartbeat.
        """
        if self.error or not self.queues:
            # What agents need stands in their indexes.
            return ()
        needed, served = needed_roles(agents), {role for worker in self.workers for role in worker.queues}
        return tuple(
            each.name
            for each in self.queues
            # A question is answered without a query worker too.
            if each.name in needed
            and each.name not in served
            and (each.name != "query" or each.waiting or each.delayed or each.in_flight)
        )


#: Made by the thread that imports this: two that make the shape at once end the process (`messages.py`).
_WORKER = msgspec.msgpack.Decoder(WorkerInfo)


def read_fleet(client: Any) -> Fleet:
    """Read the state of all queues. Raises QueueError when Redis cannot be asked."""
    return Fleet(
        queues=tuple(_depth(client, queue) for queue in QUEUES),
        workers=tuple(live_workers(client)),
        error=client.trouble(),
    )


def _depth(client: Any, queue: str) -> QueueDepth:
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
    return QueueDepth(
        name=queue,
        waiting=waiting,
        in_flight=max(0, stored - waiting),
        delayed=delayed,
        dead=dead,
        oldest_s=round(max(oldest_s, 0.0), 1),
    )


def live_workers(client: Any) -> list[WorkerInfo]:
    """List the worker processes that are alive, by role and machine."""
    stored: Any = client.hgetall(client.key("workers"))
    now, workers = client.now(), []
    for name, content in stored.items():
        worker = _WORKER.decode(content)
        if now - worker.seen > TTL_S:
            # Were it only slow, its next heartbeat would put it back.
            client.hdel(client.key("workers"), name)
        else:
            workers.append(worker)
    return sorted(workers, key=lambda worker: (worker.queues, worker.host, worker.pid))


#: What is known of each fleet and when it was read (monotonic seconds), and the clients that ask.
_fleets: dict[QueueAddress, tuple[float, Fleet]] = {}
_clients: dict[QueueAddress, Any] = {}


def fleet_at(address: QueueAddress) -> Fleet:
    """Return the state of a fleet, at most half a second old."""
    # 90 ms, most of them redis, which only a fleet pays.
    from memline.shared.queue import redis_client

    read_at, fleet = _fleets.get(address, (0.0, Fleet()))
    if not read_at or time.monotonic() - read_at >= GOOD_FOR_S:
        try:
            if address not in _clients:
                _clients[address] = redis_client.client(address, looks=True)
            fleet = read_fleet(_clients[address])
        except QueueError as error:
            fleet = Fleet(error=error)
        _fleets[address] = (time.monotonic(), fleet)
    return fleet
