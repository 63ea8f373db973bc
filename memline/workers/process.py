"""Run the workers of some queues of a fleet in this process, and end them in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Self

import dramatiq

from memline.shared.config.agents import Settings
from memline.shared.config.installation import QueueAddress
from memline.shared.logs import Log
from memline.shared.queue import fleet_owner, redis_client
from memline.shared.queue.fleet import fleet_at
from memline.shared.queue.heartbeat import Heartbeat
from memline.shared.queue.redis_broker import on_redis
from memline.shared.queue.redis_limits import RedisLimits
from memline.shared.queue.routes import BESIDE_INDEX
from memline.workers.context import PER_THREAD, Context, Requests
from memline.workers.lifecycle import Workers

#: Milliseconds an idle consumer sleeps at most before it asks Redis for messages again: a message waits 29 ms
#: (p50), and a process takes 1.4 % of a core; with 20 up to 6.6 %.
IDLE_MS = 100

#: Seconds a worker that has something to send waits for a Redis that is away, before it gives the work up:
#: what it holds may be paid for.
MAX_WAIT_S = 600.0

#: Milliseconds it waits for running messages. A provider that answers does so within that time and is not
#: paid again; one that hangs is left to its daemon thread, and the request is sent again later.
SHUTDOWN_MS = 15_000

#: Seconds that Redis remembers a request that was begun, beyond its lease.
REMEMBER_S = 60.0


class FleetProcess(Workers):
    """Works on messages of some queues of a fleet; what was fetched goes back on its queue at the end."""

    def __init__(self, settings: Settings, threads_of: Mapping[str, int], stop: threading.Event) -> None:
        """Work on the queues of `threads_of`, each with so many threads, until `stop` is set."""
        super().__init__(threads_of, idle_ms=IDLE_MS, stop_ms=SHUTDOWN_MS)
        self._settings = settings
        self._stopping = stop
        self._retry = redis_client.retrying(MAX_WAIT_S, stop)
        self._heartbeat = Heartbeat(settings.queue, threads_of, file=settings.file)

    def open(self) -> tuple[dramatiq.Broker, Context]:
        """Raise QueueError when Redis cannot be trusted with messages, or another home owns the fleet."""
        settings, address = self._settings, self._settings.queue
        broker = on_redis(address, retry=self._retry)
        if BESIDE_INDEX.intersection(self._threads_of):
            fleet_owner.refuse_other(address, settings.home, is_claimed="store" in self._threads_of)
        return broker, Context(
            settings,
            limits=RedisLimits(address, self._retry),
            requests=RedisRequests(address),
            stopping=self._stopping,
            kind="store",
        )

    def __enter__(self) -> Self:
        super().__enter__()
        self._heartbeat.beat()
        for agent in self._settings.agents:
            # Rows may wait from before.
            self._context.sweep_timer.schedule(agent, 0, deep=True)
        Log("worker").info("worker.started", queues=",".join(self._threads_of), pid=os.getpid())
        return self

    def tick(self) -> None:
        self._heartbeat.beat()

    def __exit__(self, *error: object) -> None:
        self._heartbeat.close()
        super().__exit__(*error)


class RedisRequests(Requests):
    """The queues of a fleet."""

    def __init__(self, address: QueueAddress) -> None:
        super().__init__()
        self._address = address
        self._client = redis_client.client(address)
        self._embed_threads = 0

    def begin(self, lease: str, for_s: float) -> bool:
        seconds = max(1, int(for_s + REMEMBER_S))
        return bool(self._client.set(self._client.key(f"begun:{lease}"), 1, nx=True, ex=seconds))

    def credits(self) -> int:
        """While Redis is away, as many as before; while no embed worker is alive, none.

        Else each deadline would lease the same texts once more, and count them.
        """
        fleet = fleet_at(self._address)
        if fleet.error is None:
            self._embed_threads = sum(each.threads_of.get("embed", 0) for each in fleet.workers)
        return PER_THREAD * self._embed_threads

    def store_depth(self) -> int:
        return int(self._client.llen(self._client.key("store")))
