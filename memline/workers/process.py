"""Run the workers of some queues of a fleet in this process, and end them in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

from memline.shared.config.agents import Settings
from memline.shared.logs import Log
from memline.shared.queue import fleet_owner, redis_client
from memline.shared.queue.heartbeat import Heartbeat
from memline.shared.queue.redis_broker import on_redis
from memline.shared.queue.redis_limits import RedisLimits
from memline.shared.queue.routes import BESIDE_INDEX
from memline.workers.context import Context
from memline.workers.lifecycle import serve_queues

#: Milliseconds an idle consumer sleeps at most before it asks Redis for messages again: a message waits 29 ms
#: (p50), and a process takes 1.4 % of a core; with 20 up to 6.6 %.
IDLE_MS = 100

#: Seconds a worker that has something to send waits for a Redis that is away, before it gives the work up:
#: what it holds may be paid for.
MAX_WAIT_S = 600.0

#: Milliseconds it waits for running messages. A provider that answers does so within that time and is not
#: paid again; one that hangs is left to its daemon thread, and the request is sent again later.
SHUTDOWN_MS = 15_000


@contextmanager
def fleet_worker(
    settings: Settings, threads_of: Mapping[str, int], stop: threading.Event
) -> Iterator[Callable[[], None]]:
    """Work on queues of a fleet, each with so many threads: a part of a process (`producers.runs.parts`).

    What was fetched and not begun goes back on its queue at the end. Raises QueueError when Redis cannot be
    trusted with messages, or another home owns the fleet.
    """
    address, retry = settings.queue, redis_client.retrying(MAX_WAIT_S, stop)
    broker = on_redis(address, retry=retry)
    if BESIDE_INDEX.intersection(threads_of):
        fleet_owner.refuse_other(address, settings.home, is_claimed="store" in threads_of)
    context = Context(
        settings,
        limits=RedisLimits(address, retry),
        client=redis_client.client(address),
        stopping=stop,
        kind="store",
    )
    with serve_queues(broker, context, threads_of, idle_ms=IDLE_MS, stop_ms=SHUTDOWN_MS):
        for agent in settings.agents:
            # Rows may wait from before.
            context.schedule(agent, 0, deep=True)
        with closing(Heartbeat(address, threads_of, file=settings.file)) as heartbeat:
            heartbeat.beat()
            Log("worker").info("worker.started", queues=",".join(threads_of), pid=os.getpid())
            yield heartbeat.beat
