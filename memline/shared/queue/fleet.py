"""The state of a fleet: its queues and its workers, as Redis has them, for who looks often."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import msgspec

from memline.shared.config.schema import AgentSettings
from memline.shared.errors import QueueError
from memline.shared.queue.routes import needed_roles


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
    #: Queue -> messages that it finished in the last minute.
    done: dict[str, int] = {}

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


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """One queue at one moment."""

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
    #: Messages finished in the last minute.
    rate_per_minute: float

    def needs_worker(self, roles: Container[str]) -> bool:
        """Say whether some worker has to take its messages, where the configuration needs these roles."""
        # A question is answered without a query worker too.
        is_missed = self.name != "query" or self.waiting or self.delayed or self.in_flight
        return self.name in roles and bool(is_missed)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "role": self.name,
            "waiting": self.waiting,
            "inFlight": self.in_flight,
            "delayed": self.delayed,
            "dead": self.dead,
            "oldestSeconds": self.oldest_s,
            "ratePerMinute": self.rate_per_minute,
        }


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
        needed, served = needed_roles(agents), {role for worker in self.workers for role in worker.queues}
        queues = () if self.error else self.queues
        return tuple(each.name for each in queues if each.needs_worker(needed) and each.name not in served)
