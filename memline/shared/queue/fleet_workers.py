"""Hand the work of a command to the workers of a fleet, and notice when it cannot go on."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.index.hold import holder_of
from memline.shared.queue import redis_client
from memline.shared.queue.broker import send
from memline.shared.queue.dead_letters import errors_since
from memline.shared.queue.heartbeat import live_workers
from memline.shared.queue.messages import Sweep
from memline.shared.queue.redis_broker import on_redis
from memline.shared.queue.redis_client import RetryPolicy

#: Seconds between two looks at which workers are alive.
LOOK_EVERY_S = 2.0

#: Seconds a queue may be without a worker before a command that waits for it gives up: a restart takes less.
MISSING_S = 30.0

#: Seconds after which it says so: with the silence of a killed worker (`heartbeat.TTL_S`) less than fifteen.
SAID_S = 3.0

#: Seconds that a command waits for the first worker: a fleet that was never there is not one that restarts.
FIRST_S = 5.0


class Fleet:
    """A fleet on Redis; a context manager with the face of `InProcessWorkers`."""

    def __init__(self, address: QueueAddress, index: Path | None = None) -> None:
        """`index`: the one whose dispatcher the caller waits for; None where it waits for none."""
        self._address = address
        self._index = index
        self._agent = ""
        self._looked_at = 0.0

    def __enter__(self) -> Fleet:
        on_redis(self._address, retry=RetryPolicy(max_wait_s=MISSING_S))
        self._client = redis_client.client(self._address)
        #: When this began, by the clock of Redis (seconds since the epoch).
        self._began_at = redis_client.now(self._client)
        now = time.monotonic()
        #: Queue -> when a worker of it was alive last (monotonic seconds).
        self._served_at = dict.fromkeys(("chunk", "store"), now - MISSING_S + FIRST_S) | {"embed": now}
        self._dispatched_at = now
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def wake(self, agent: str) -> None:
        """Let the store worker take up what waits in the rows."""
        self._agent = agent
        send(Sweep(agent=agent))

    def check(self, *, wants_vectors: bool) -> str:
        """Say which role is missing that the caller waits for; empty while a restart may explain it.

        `wants_vectors`: whether a worker has to embed. Raises QueueError when the work cannot go on: a queue
        has had no worker for a while, or a worker failed.
        """
        now = time.monotonic()
        if not wants_vectors:
            self._served_at["embed"] = now
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            if (fault := self._fault(now)) is not None:
                raise fault
        is_missing = now - self._served_at["embed"] > SAID_S
        return "no worker takes messages from the queue 'embed'" if is_missing else ""

    def _fault(self, now: float) -> QueueError | None:
        """Note which queues are served; return why the work cannot go on, if it cannot."""
        try:
            workers = live_workers(self._client)
            for queue in self._served_at:
                if any(queue in each.queues for each in workers):
                    self._served_at[queue] = now
            for queue in ("chunk", "store"):
                for error in errors_since(self._client, queue, self._agent, self._began_at):
                    words = f"a worker of the queue {queue!r} failed: {error}"
                    return QueueError(words, hint="memline queue dead")
            if self._index is None or holder_of(self._index) is not None:
                self._dispatched_at = now
            if now - self._dispatched_at > MISSING_S:
                words = f"no worker of the queue 'store' takes the index of the agent {self._agent!r}"
                hint = "give the workers the configuration that `memline config check` names"
                return QueueError(words, hint=hint)
            if self._missing_s(now) <= MISSING_S:
                return None
            # No worker can tell that it is alive when Redis takes no writes: full, or a replica.
            redis_client.check_writable(self._client)
        except QueueError as error:
            # Redis is away: the work goes on when it is back, and so does the waiting, for a while.
            return error if self._missing_s(now) > MISSING_S else None
        queue = min(self._served_at, key=self._served_at.__getitem__)
        words = f"no worker takes messages from the queue {queue!r}"
        return QueueError(words + (", and vectors wait" * (queue == "embed")), hint=f"memline worker {queue}")

    def _missing_s(self, now: float) -> float:
        """Return for how many seconds a queue that is needed has had no worker."""
        return now - min(self._served_at.values())


def wake(address: QueueAddress, agent: str) -> None:
    """Let the store worker take up what was written into the rows, which its sweep finds a little later.

    So neither a Redis that is away is a fault, nor an empty `address`: the process that runs looks by itself.
    """
    if address:
        with suppress(QueueError), Fleet(address) as fleet:
            fleet.wake(agent)
