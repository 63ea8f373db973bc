"""Ask the Redis of a fleet, for who looks often. It imports redis, 90 ms: others import it late."""

from __future__ import annotations

import time
from collections.abc import Sequence

from memline.shared.config.installation import QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import QueueError
from memline.shared.finding import GOOD_FOR_S
from memline.shared.findings.fleet_summary import FleetSummary
from memline.shared.queue import depth, redis_client
from memline.shared.queue.depth import Fleet
from memline.shared.queue.redis_client import FleetClient
from memline.shared.queue.routes import needed_roles

_fleets: dict[QueueAddress, tuple[float, Fleet | QueueError]] = {}
_clients: dict[QueueAddress, FleetClient] = {}


def fleet_at(url: QueueAddress) -> Fleet | QueueError:
    """Return what Redis says of a fleet, at most half a second old, or why it says nothing."""
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


def summary_of(url: QueueAddress, agents: Sequence[AgentSettings]) -> FleetSummary:
    """Return what these agents need to know of the fleet at this address."""
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
