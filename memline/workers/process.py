"""Run the workers of some queues in threads of this process, and stop them in order."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib import import_module

import dramatiq
from dramatiq.brokers.stub import StubBroker
from dramatiq.errors import QueueJoinTimeout

from memline.shared.config.agents import Settings
from memline.shared.logs import Log
from memline.shared.queue.routes import BESIDE_INDEX
from memline.workers.context import Context, use

#: Milliseconds an idle consumer of a question sleeps at most before it asks for messages again.
IDLE_QUERY_MS = 20

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
def serve_queues(
    broker: dramatiq.Broker, context: Context, threads_of: Mapping[str, int], *, idle_ms: int, stop_ms: int
) -> Iterator[None]:
    """Work on the messages of queues while the block runs; `threads_of`: queue -> threads.

    Each queue has a dramatiq worker of its own, so that `store` keeps its single thread, and a provider that
    hangs holds up no other queue. A consumer without work looks again after `idle_ms`. The end waits
    `stop_ms` for running messages, and for those in memory that are to be sent or stored.
    """
    workers: dict[str, dramatiq.Worker] = {}
    timer = threading.Thread(target=context.send_sweeps, name="sweep-timer", daemon=True)

    def stop(queue: str) -> None:
        left_ms = stop_ms
        if isinstance(broker, StubBroker) and queue in ("embed", "store"):
            try:
                broker.join(queue, timeout=stop_ms, fail_fast=False)
            except QueueJoinTimeout:
                # A call that hangs was waited for.
                left_ms = 0 if queue == "embed" else stop_ms
        workers[queue].stop(timeout=left_ms)

    use(context)
    try:
        for queue in threads_of:
            # An actor belongs to the broker that is current at its import.
            import_module(f"memline.workers.{queue}")
        # Its one warning is about several workers a process.
        broker.logger.setLevel(logging.ERROR)
        for queue, threads in threads_of.items():
            wait_ms = IDLE_QUERY_MS if queue == "query" else idle_ms
            worker = dramatiq.Worker(broker, queues={queue}, worker_threads=threads, worker_timeout=wait_ms)
            workers[queue] = worker
            worker.start()
        if "store" in threads_of:
            timer.start()
        yield
    finally:
        # What makes work first, together, and `store` last, so that what was paid for is stored.
        context.stopping.set()
        with ThreadPoolExecutor() as pool:
            pool.map(stop, workers.keys() - {"store"})
        if timer.is_alive():
            timer.join()
        if "store" in workers:
            stop("store")
        context.close()
        use(None)


@contextmanager
def fleet_worker(
    settings: Settings, threads_of: Mapping[str, int], stop: threading.Event
) -> Iterator[Callable[[], None]]:
    """Work on queues of a fleet, each with so many threads: a part of a process (`producers.runs.parts`).

    What was fetched and not begun goes back on its queue at the end. Raises QueueError when Redis cannot be
    trusted with messages, or another home owns the fleet.
    """
    # redis takes 45 ms to import, which workers without a fleet never need.
    from memline.shared.queue import fleet_owner, heartbeat, redis_broker, redis_client, redis_limits

    address, retry = settings.queue, redis_client.retrying(MAX_WAIT_S, stop)
    broker = redis_broker.on_redis(address, retry=retry)
    if BESIDE_INDEX.intersection(threads_of):
        fleet_owner.refuse_other(address, settings.home, is_claimed="store" in threads_of)
    context = Context(
        settings,
        limits=redis_limits.RedisLimits(address, retry),
        client=redis_client.client(address),
        stopping=stop,
        kind="store",
    )
    sign_of_life = heartbeat.Heartbeat(address, threads_of, file=settings.file)
    # Before the first dispatch, which leases as much as the threads of the fleet can take.
    sign_of_life.beat()
    serving = serve_queues(broker, context, threads_of, idle_ms=IDLE_MS, stop_ms=SHUTDOWN_MS)
    with serving, closing(sign_of_life):
        for agent in settings.agents:
            # Rows may wait from before.
            context.schedule(agent, 0, deep=True)
        Log("worker").info("worker.started", queues=",".join(threads_of), pid=os.getpid())
        yield sign_of_life.beat
