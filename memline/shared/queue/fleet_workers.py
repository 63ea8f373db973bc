"""Hand the work of a command to the workers of a fleet, and notice when it cannot go on."""

from __future__ import annotations

import time
from contextlib import suppress

from memline.shared.config.installation import QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import QueueError
from memline.shared.index.hold import holder_of
from memline.shared.queue.broker import send
from memline.shared.queue.fleet import Fleet, fleet_at
from memline.shared.queue.messages import Sweep

#: Seconds a queue may be without a worker before a command that waits for it gives up: a restart takes less.
MISSING_S = 15.0


class FleetWorkers:
    """The workers of a fleet, for a command that waits for them; a context manager."""

    def __init__(self, address: QueueAddress, agent: AgentSettings) -> None:
        """`agent`: the one whose index the caller waits for."""
        self._address = address
        self._agent = agent

    def __enter__(self) -> FleetWorkers:
        """Raise QueueError when Redis cannot be trusted with messages."""
        # redis takes 45 ms to import, which a run without a fleet never needs.
        from memline.shared.queue.redis_broker import on_redis
        from memline.shared.queue.redis_client import retrying

        on_redis(self._address, retry=retrying(MISSING_S))
        self._began_at, self._dead = time.time(), fleet_at(self._address).dead
        #: When nothing was missing last (monotonic seconds).
        self._well_at = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the fleet goes on."""

    def check(self, *, wants_vectors: bool) -> str:
        """Say what the fleet lacks for this run; empty where it lacks nothing.

        `wants_vectors`: whether a worker has to embed. Raises QueueError when the work cannot go on: it has
        lacked something for a while, or a worker failed.
        """
        now, fleet = time.monotonic(), fleet_at(self._address)
        if fleet.dead > self._dead:
            self._dead = fleet.dead
            self._raise_failure()
        fault = self._fault(fleet, wants_vectors)
        if fault is None:
            self._well_at = now
        elif now - self._well_at > MISSING_S:
            raise fault
        return fault.message if fault is not None else ""

    def _fault(self, fleet: Fleet, wants_vectors: bool) -> QueueError | None:
        """Return what keeps the run from going on."""
        has_batch = any(each.name == "batch" and each.waiting for each in fleet.queues)
        needed = ("chunk", "store", *["embed"] * wants_vectors, *["batch"] * has_batch)
        if missing := next((role for role in fleet.missing([self._agent]) if role in needed), None):
            words = f"no worker takes messages from the queue {missing!r}"
            return QueueError(words, hint=f"memline worker {missing}")
        if fleet.error is None and holder_of(self._agent.index_path) is None:
            words = f"no worker of the queue 'store' takes the index of the agent {self._agent.agent!r}"
            hint = "give the workers the configuration that `memline config check` names"
            return QueueError(words, hint=hint)
        return fleet.error

    def _raise_failure(self) -> None:
        """Raise the error of a message of this run that failed for good, if there is one."""
        from memline.shared.queue import dead_letters

        for each in dead_letters.listed(self._address, agent=self._agent.agent):
            if each.age_s <= time.time() - self._began_at:
                words = f"a worker of the queue {each.queue!r} failed: {each.error}"
                raise QueueError(words, hint="memline queue dead")


def wake(address: QueueAddress, agent: str) -> None:
    """Let the store worker take up what was written into the rows, which its sweep finds a little later.

    So neither a Redis that is away is a fault, nor an empty `address`: the process that runs looks by itself.
    """
    if address:
        from memline.shared.queue.redis_broker import on_redis

        with suppress(QueueError):
            on_redis(address)
            send(Sweep(agent=agent))
