"""Run the workers of some queues in threads of this process, and stop them in order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module

import dramatiq
from dramatiq.brokers.stub import StubBroker
from dramatiq.errors import QueueJoinTimeout

from memline.shared.errors import IndexFault
from memline.workers.context import Context, use

#: Milliseconds an idle consumer of a question sleeps at most before it asks for messages again.
IDLE_QUERY_MS = 20


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
    is_index_lost = False

    def stop(queue: str) -> None:
        left_ms = stop_ms
        if isinstance(broker, StubBroker) and queue in ("embed", "store") and not is_index_lost:
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
    except IndexFault:
        is_index_lost = True
        raise
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
