"""Start the workers of some queues in this process, and stop them in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import dramatiq

from memline.shared.queue.routes import QUEUES

#: Milliseconds an idle consumer sleeps at most before it asks Redis for messages again. Measured with 100: a
#: message waits 29 ms (p50) on an idle queue, and a process takes 1.4 % of a core, 2.6 where others keep both
#: cores busy; with 20 up to 6.6 %.
IDLE_MS = 100
IDLE_QUERY_MS = 20


def start(
    broker: dramatiq.Broker, threads_of: Mapping[str, int], *, idle_ms: int = IDLE_MS
) -> dict[str, dramatiq.Worker]:
    """Start a worker for each queue; the broker is the process's.

    So `store` keeps its single thread, and a provider that hangs holds up no other queue.
    """
    for queue in threads_of:
        # An actor belongs to the broker that is current at its import.
        import_module(f"memline.workers.{queue}")
    # Its one warning is about several workers a process.
    broker.logger.setLevel(logging.ERROR)
    workers = {
        role: dramatiq.Worker(
            broker,
            queues={role},
            worker_threads=threads,
            worker_timeout=IDLE_QUERY_MS if role == "query" else idle_ms,
        )
        for role, threads in threads_of.items()
    }
    for worker in workers.values():
        worker.start()
    return workers


def stop(
    workers: Mapping[str, dramatiq.Worker], *, timeout_ms: int, before_store: Callable[[], None] | None = None
) -> None:
    """Stop what makes work first, together, and `store` last, so that what was paid for is stored.

    `before_store` is called in between.
    """
    with ThreadPoolExecutor(max_workers=len(QUEUES)) as pool:
        for role, worker in workers.items():
            if role != "store":
                pool.submit(worker.stop, timeout=timeout_ms)
    if "store" in workers:
        if before_store is not None:
            before_store()
        workers["store"].stop(timeout=timeout_ms)
