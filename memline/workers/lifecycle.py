"""Declare the actors of some queues, start their workers in this process, and stop them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import dramatiq

from memline.shared.queue.routes import QUEUES

#: Milliseconds an idle consumer sleeps at most before it asks Redis for messages again. Measured with 100: a
#: message waits 29 ms (p50) on an idle queue, which takes 1.4 % of a core.
IDLE_MS = 100
IDLE_QUERY_MS = 20


def declare_actors(queues: Iterable[str]) -> None:
    """Import the modules of these queues; an actor belongs to the broker that is current at its import."""
    for queue in queues:
        import_module(f"memline.workers.{queue}")


def start(
    broker: dramatiq.Broker, threads_of: Mapping[str, int], *, idle_ms: int = IDLE_MS
) -> dict[str, dramatiq.Worker]:
    """Start a worker for each queue, so that `store` keeps its single thread and a provider that hangs holds
    up no other queue."""
    # Its one warning is about several workers a process.
    for kind in type(broker).__mro__:
        logging.getLogger(f"dramatiq.broker.{kind.__name__}").setLevel(logging.ERROR)
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


def stop_together(workers: Iterable[dramatiq.Worker], *, timeout_ms: int) -> None:
    """Stop workers at the same time; `store` comes later, so that what the others bring is stored."""
    with ThreadPoolExecutor(max_workers=len(QUEUES)) as pool:
        for worker in workers:
            pool.submit(worker.stop, timeout=timeout_ms)
