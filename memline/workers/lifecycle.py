"""Run the workers of some queues in threads of this process, and stop them in order."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Self

import dramatiq

from memline.shared.queue.routes import QUEUES
from memline.workers import context
from memline.workers.context import Context

#: Milliseconds an idle consumer of a question sleeps at most before it asks for messages again.
IDLE_QUERY_MS = 20


class Workers(ABC):
    """Works on the messages of some queues: a part of a process (`producers.runs.parts`).

    Each queue has a dramatiq worker of its own, so that `store` keeps its single thread, and a provider that
    hangs holds up no other queue. At the end what is running is finished.
    """

    def __init__(self, threads_of: Mapping[str, int], *, idle_ms: int, stop_ms: int) -> None:
        """`threads_of`: queue -> threads. A consumer without work looks again after `idle_ms`.

        The end waits `stop_ms` for running messages.
        """
        self._threads_of = threads_of
        self._idle_ms, self._stop_ms = idle_ms, stop_ms
        self._workers: dict[str, dramatiq.Worker] = {}

    @abstractmethod
    def open(self) -> tuple[dramatiq.Broker, Context]:
        """Make the broker of this process and the context of its actors."""

    def __enter__(self) -> Self:
        broker, self._context = self.open()
        context.use(self._context)
        for queue in self._threads_of:
            # An actor belongs to the broker that is current at its import.
            import_module(f"memline.workers.{queue}")
        # Its one warning is about several workers a process.
        broker.logger.setLevel(logging.ERROR)
        for queue, threads in self._threads_of.items():
            idle_ms = IDLE_QUERY_MS if queue == "query" else self._idle_ms
            worker = dramatiq.Worker(broker, queues={queue}, worker_threads=threads, worker_timeout=idle_ms)
            self._workers[queue] = worker
            worker.start()
        if "store" in self._threads_of:
            # Last: where nothing else started there is none to stop it.
            self._context.sweep_timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what makes work first, together, and `store` last, so that what was paid for is stored."""
        self._context.stopping.set()
        with ThreadPoolExecutor(max_workers=len(QUEUES)) as pool:
            for queue in self._workers.keys() - {"store"}:
                pool.submit(self.stop, queue, self._stop_ms)
        if "store" in self._workers:
            self._context.sweep_timer.join()
            self.stop("store", self._stop_ms)
        self._context.close()
        context.use(None)

    def stop(self, queue: str, timeout_ms: int) -> None:
        """Stop the worker of a queue after the messages it works on."""
        self._workers[queue].stop(timeout=timeout_ms)
