"""The workers of a fleet, as a command sees them: woken by a message, missed when nobody answers."""

from __future__ import annotations

import time
from types import TracebackType

from shared.errors import QueueError
from shared.queue import server
from shared.queue.broker import on_redis
from shared.queue.dead import errors_since
from shared.queue.messages import Sweep
from shared.queue.patience import Patience
from shared.queue.presence import is_served
from shared.queue.send import send

#: Seconds between two looks at who is there.
LOOK_EVERY_S = 2.0

#: Seconds a queue may be without a worker before a command that waits for it gives up: a restart takes less.
MISSING_S = 30.0


class Fleet:
    """A fleet on Redis; a context manager with the face of `OneProcess`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._looked = 0.0
        self._last_served: dict[str, float] = {}
        self._agents: set[str] = set()
        #: When this began, by the clock of Redis (seconds since the epoch).
        self._began = 0.0

    def __enter__(self) -> Fleet:
        on_redis(self._url, patience=Patience(self._url, seconds=MISSING_S))
        self._client = server.client(self._url)
        with server.translated(self._url):
            seconds, microseconds = self._client.time()
        self._began = seconds + microseconds / 1e6
        began = time.monotonic()
        # A fleet that was never there is not waited for as long as one that restarts.
        self._last_served = dict.fromkeys(("chunk", "store"), began - MISSING_S + 5.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def wake(self, agent: str) -> None:
        """Let the store worker take up what waits in the rows."""
        self._agents.add(agent)
        send(Sweep(agent=agent, sent=time.time()))

    def fault(self) -> BaseException | None:
        """A QueueError when the work cannot go on: a queue has had no worker for too long, or one failed."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_S:
            return None
        self._looked = now
        try:
            with server.translated(self._url):
                for queue in self._last_served:
                    if is_served(self._client, queue):
                        self._last_served[queue] = now
                    for agent in self._agents:
                        for error in errors_since(self._client, queue, agent, self._began):
                            return QueueError(
                                f"a worker of the queue {queue!r} failed: {error}", hint="memline queue dead"
                            )
                if now - min(self._last_served.values()) > MISSING_S:
                    # No worker can tell that it is alive when Redis takes no writes: full, or a replica.
                    server.probe(self._client)
        except QueueError as error:
            # Redis is away: the work goes on when it is back, and so does the waiting, for a while.
            if now - min(self._last_served.values()) > MISSING_S:
                return error
            return None
        for queue, seen in self._last_served.items():
            if now - seen > MISSING_S:
                return QueueError(
                    f"no worker takes messages from the queue {queue!r}",
                    hint="start the workers: honcho start (see the Procfile), or unset queue.url",
                )
        return None
