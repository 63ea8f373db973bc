"""Run the workers of some queues of a fleet in this process, and end them in order."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from dramatiq.middleware import Middleware

from memline.shared import logs
from memline.shared.config.agents import Settings
from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.queue import fleet_owner, redis_client
from memline.shared.queue.broker import send
from memline.shared.queue.heartbeat import Heartbeat, live_workers
from memline.shared.queue.in_flight import PER_THREAD, InFlightRequests
from memline.shared.queue.messages import Sweep, agent_of
from memline.shared.queue.redis_broker import on_redis
from memline.shared.queue.redis_client import RetryPolicy
from memline.shared.queue.redis_limits import RedisLimits
from memline.shared.queue.routes import QUEUES
from memline.workers.context import Context, use
from memline.workers.lifecycle import start, stop

#: Seconds a worker that has something to send waits for a Redis that is away, before it gives the work up:
#: what it holds may be paid for.
MAX_WAIT_S = 600.0

#: Seconds a process that was told to stop goes on trying to send and acknowledge while Redis is away.
LAST_TRIES_S = 5.0

#: Milliseconds it waits for running messages. A provider that answers does so within that time and is not
#: paid again; one that hangs is left to its daemon thread, and the request is sent again later.
SHUTDOWN_MS = 15_000

#: Seconds between two looks at which workers are alive: as often as their heartbeat.
LOOK_EVERY_S = 2.0

#: Seconds a queue may be without a worker before it counts as not served: a restart takes less.
GONE_S = 30.0

#: Seconds that Redis remembers a request that was begun, beyond its lease.
REMEMBER_S = 60.0


class Workers:
    """Works on messages of some queues of a fleet: a part of a process (`producers.runs.parts`).

    At the end what is running is finished, and what was fetched goes back on its queue.
    """

    def __init__(self, settings: Settings, threads_of: Mapping[str, int], stop: threading.Event) -> None:
        """Work on the queues of `threads_of`, each with so many threads, until `stop` is set."""
        self._settings = settings
        self._threads_of = threads_of
        self._stop = stop
        self._retry = RetryPolicy(max_wait_s=MAX_WAIT_S)
        self._heartbeat = ShowWork(settings.queue, threads_of, file=settings.file)

    def __enter__(self) -> Workers:
        """Raise QueueError when Redis cannot be trusted with messages, or another home owns the fleet."""
        settings, address, roles = self._settings, self._settings.queue, self._threads_of
        broker = on_redis(address, retry=self._retry, middleware=[self._heartbeat])
        if any(QUEUES[role].is_beside_index for role in roles):
            fleet_owner.refuse_other(address, settings.home, is_claimed="store" in roles)
        self._context = Context(
            settings,
            limits=RedisLimits(address, self._retry),
            in_flight=RedisRequests(address),
            stopping=self._stop,
            kind="store",
        )
        use(self._context)
        self._workers = start(broker, roles)
        if "store" in roles:
            self._context.sweep_timer.start()
        self._heartbeat.start()
        if {"store", "batch"} & set(roles):
            # Rows may wait from before, and a batch that a killed process was in the middle of.
            for agent in settings.agents:
                send(Sweep(agent=agent, deep=True))
        Log("worker").info("worker.started", queues=",".join(roles), pid=os.getpid())
        return self

    def tick(self) -> None:
        """Do nothing: the threads of the workers do it."""

    def __exit__(self, *_: object) -> None:
        self._retry.stop_after(LAST_TRIES_S)
        self._heartbeat.stop()
        stop(self._workers, timeout_ms=SHUTDOWN_MS)
        self._context.close()


class ShowWork(Heartbeat, Middleware):
    """Tells Redis what this process works on, and puts a message's names on the log lines about it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lines = threading.local()

    def before_process_message(self, broker: Any, message: Any) -> None:
        self._lines.context = logs.context(
            queue=message.queue_name,
            message_id=message.message_id,
            actor=message.actor_name,
            agent=agent_of(message.args),
        )
        self._lines.context.__enter__()

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        self._lines.context.__exit__(None, None, None)
        if exception is None:
            self.count(message.queue_name)


class RedisRequests(InFlightRequests):
    """The queues of a fleet."""

    def __init__(self, address: QueueAddress) -> None:
        super().__init__()
        self._client = redis_client.client(address)
        self._looked_at = 0.0
        self._embed_threads = QUEUES["embed"].threads
        # Processes of one fleet start together.
        self._batch_worker_seen = time.monotonic()

    def begin(self, lease: str, for_s: float) -> bool:
        seconds = max(1, int(for_s + REMEMBER_S))
        return bool(self._client.set(self._client.key(f"begun:{lease}"), 1, nx=True, ex=seconds))

    def credits(self) -> int:
        """While Redis is away, as many as before; while no embed worker is alive, as for one process."""
        self._look()
        return PER_THREAD * self._embed_threads

    def serves_batches(self) -> bool:
        self._look()
        return time.monotonic() - self._batch_worker_seen < GONE_S

    def store_depth(self) -> int:
        return int(self._client.llen(self._client.key("store")))

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            threads_of = [worker.threads_of for worker in live_workers(self._client)]
        except QueueError:
            # The sender of the requests meets the same trouble, waits for its end and says so.
            self._batch_worker_seen = max(self._batch_worker_seen, now - GONE_S + LOOK_EVERY_S)
            return
        self._embed_threads = sum(each.get("embed", 0) for each in threads_of) or QUEUES["embed"].threads
        if any("batch" in each for each in threads_of):
            self._batch_worker_seen = now
