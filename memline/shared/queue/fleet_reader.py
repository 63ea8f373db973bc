"""Read the state of a fleet from its Redis, and keep it for half a second: many ask at once."""

from __future__ import annotations

import time
from typing import Any

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.finding import GOOD_FOR_S
from memline.shared.queue.fleet import Fleet

#: What is known of each fleet and when it was read (monotonic seconds), and the clients that ask.
_fleets: dict[QueueAddress, tuple[float, Fleet]] = {}
_clients: dict[QueueAddress, Any] = {}


def fleet_at(address: QueueAddress) -> Fleet:
    """Return the state of a fleet, at most half a second old."""
    # 90 ms, most of them redis, which only a fleet pays.
    from memline.shared.queue import heartbeat, redis_client

    read_at, fleet = _fleets.get(address, (0.0, Fleet()))
    if not read_at or time.monotonic() - read_at >= GOOD_FOR_S:
        try:
            if address not in _clients:
                _clients[address] = redis_client.client(address, looks=True)
            fleet = heartbeat.read_fleet(_clients[address])
        except QueueError as error:
            fleet = Fleet(error=error)
        _fleets[address] = (time.monotonic(), fleet)
    return fleet
