"""Hand the work of a command to the workers of a fleet, and notice when it cannot go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memline.shared.config.installation import QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import QueueError
from memline.shared.index.hold import holder_of
from memline.shared.queue.fleet import Fleet, fleet_at

#: Seconds a queue may be without a worker before a command that waits for it gives up: a restart takes less.
MISSING_S = 15.0


@contextmanager
def fleet_workers(address: QueueAddress, agent: AgentSettings) -> Iterator[Callable[..., str]]:
    """Let the workers of a fleet do the work of a command that waits for the index of an agent.

    Gives what says what the fleet lacks for it, empty where it lacks nothing; `wants_vectors` tells whether a
    worker has to embed. That raises QueueError when the work cannot go on: the fleet has lacked something for
    a while, or a worker failed. At the start it is raised when Redis cannot be trusted with messages.
    """
    # redis takes 45 ms to import, which a run without a fleet never needs.
    from memline.shared.queue.redis_broker import on_redis
    from memline.shared.queue.redis_client import retrying

    on_redis(address, retry=retrying(MISSING_S))
    began_at, dead = time.time(), fleet_at(address).dead
    # When nothing was missing last.
    well_at = time.monotonic()

    def check(*, wants_vectors: bool) -> str:
        nonlocal dead, well_at
        now, fleet = time.monotonic(), fleet_at(address)
        if fleet.dead > dead:
            dead = fleet.dead
            _raise_failure(address, agent.agent, began_at)
        fault = _fault(fleet, agent, wants_vectors)
        if fault is None:
            well_at = now
        elif now - well_at > MISSING_S:
            raise fault
        return fault.message if fault is not None else ""

    yield check


def _fault(fleet: Fleet, agent: AgentSettings, wants_vectors: bool) -> QueueError | None:
    """Return what keeps a run from going on."""
    has_batch = any(each.name == "batch" and each.waiting for each in fleet.queues)
    needed = ("chunk", "store", *["embed"] * wants_vectors, *["batch"] * has_batch)
    if missing := [role for role in fleet.missing([agent]) if role in needed]:
        words = f"no worker takes messages from {', '.join(missing)}"
        return QueueError(words, hint=f"memline worker {' '.join(missing)}")
    if fleet.error is None and holder_of(agent.index_path) is None:
        words = f"no worker of the queue 'store' takes the index of the agent {agent.agent!r}"
        hint = "give the workers the configuration that `memline config check` names"
        return QueueError(words, hint=hint)
    return fleet.error


def _raise_failure(address: QueueAddress, agent: str, since: float) -> None:
    """Raise the error of a message about an agent that failed for good since a time, if there is one."""
    from memline.shared.queue import dead_letters

    for each in dead_letters.listed(address, agent=agent):
        if each.age_s <= time.time() - since:
            words = f"a worker of the queue {each.queue!r} failed: {each.error}"
            raise QueueError(words, hint="memline queue dead")
