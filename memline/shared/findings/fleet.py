"""Ask the Redis of a fleet, for who looks often."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from memline.shared.config.installation import QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import QueueError
from memline.shared.finding import GOOD_FOR_S
from memline.shared.queue.routes import needed_roles

#: What is known of each fleet and when it was read, and the clients that ask.
_fleets: dict[QueueAddress, tuple[float, Any]] = {}
_clients: dict[QueueAddress, Any] = {}


class FleetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What agents need to know of their fleet."""

    #: Why Redis does not answer, or takes no messages; None when it does.
    error: QueueError | None = None
    #: Roles that are needed and that no worker has.
    missing: tuple[str, ...] = ()
    #: Workers that are alive, and messages that failed for good.
    workers: int = 0
    dead: int = 0
    #: Name, newer configuration file and command of the workers that are older than their configuration.
    old_workers: tuple[tuple[str, str, str], ...] = ()

    @property
    def is_embedding(self) -> bool:
        """Whether texts are sent and vectors stored."""
        return self.error is None and not {"store", "embed"} & {*self.missing}


def fleet_at(url: QueueAddress) -> Any:
    """Return what Redis says of a fleet (`shared.queue.depth.Fleet`), or the QueueError why it says nothing.

    It is at most half a second old.
    """
    # 90 ms, most of them redis, which only a fleet pays.
    from memline.shared.queue import depth, redis_client

    asked, fleet = _fleets.get(url, (0.0, None))
    if fleet is None or time.monotonic() - asked >= GOOD_FOR_S:
        try:
            if url not in _clients:
                _clients[url] = redis_client.client(url, looks=True)
            fleet = depth.read(_clients[url])
        except QueueError as error:
            fleet = error
        _fleets[url] = (time.monotonic(), fleet)
    return fleet


def fleet_summary(url: QueueAddress, agents: Sequence[AgentSettings]) -> FleetSummary | None:
    """Return what these agents need to know of the fleet at this address; None without one."""
    if not url:
        return None
    fleet = fleet_at(url)
    if isinstance(fleet, QueueError):
        return FleetSummary(error=fleet)
    needed = needed_roles(agents)
    queues = [each for each in fleet.queues if each.needs_worker(needed)]
    old = []
    for worker in fleet.workers:
        if worker.newer_file:
            command = f"memline worker {' '.join(worker.queues)}"
            old.append((f"{command} on {worker.host} (process {worker.pid})", worker.newer_file, command))
    return FleetSummary(
        error=fleet.error,
        # A Redis without memory takes no heartbeat: who is alive is not known.
        missing=() if fleet.error else tuple(each.name for each in queues if not fleet.is_served(each)),
        workers=len(fleet.workers),
        dead=sum(each.dead for each in fleet.queues),
        old_workers=tuple(old),
    )
