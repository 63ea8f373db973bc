"""Run the whole pipeline in one process: the composition root, which alone imports producers and workers.

The actors are those of the fleet; only the broker differs.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from typing import Self

import dramatiq

from memline.shared.clock import Clock
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexCorrupt, IndexFault
from memline.shared.queue import broker as queue_broker
from memline.shared.queue.fleet_workers import FleetWorkers
from memline.shared.queue.routes import INDEXING, QUEUES, uses_batches
from memline.workers.context import Context, Requests
from memline.workers.lifecycle import Workers

#: Milliseconds an idle thread sleeps before it looks whether it should stop: short for a command that ends,
#: longer for `up`, where some eighteen threads wake as often, for weeks.
IDLE_MS = {"index": 50, "up": 300}

#: Milliseconds a stop waits for running calls; a provider that hangs is left to its daemon thread.
STOP_TIMEOUT_MS = 5_000

#: Held by the workers that run: broker, actors and context are the process's, so two sets of workers would
#: take each other's messages, and the end of one would leave the other without a context.
_one_at_a_time = threading.Lock()

#: The option of mallopt(3), as malloc.h has it.
_M_ARENA_MAX = -8


class InProcessWorkers(Workers):
    """Runs the workers without a fleet; a context manager.

    One set runs at a time: a second one, as of the page of a server, waits until the first has ended.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        long_lived: bool = False,
        clock: Clock | None = None,
    ) -> None:
        # A worker for batches runs when some agent uses them, or has left one open.
        has_batches = any(map(uses_batches, settings.agents.values()))
        queues = (*INDEXING, "batch") if has_batches else INDEXING
        self._kind = "up" if long_lived else "index"
        threads_of = {queue: QUEUES[queue] for queue in queues}
        super().__init__(threads_of, idle_ms=IDLE_MS[self._kind], stop_ms=STOP_TIMEOUT_MS)
        self._settings = settings
        self._clock = clock

    def open(self) -> tuple[dramatiq.Broker, Context]:
        if "memline.producers.start" in sys.modules:
            # Not in a program that uses `Memory`: it may have threads of its own.
            _share_one_heap()
        self._broker = queue_broker.in_process()
        return self._broker, Context(
            self._settings,
            clock=self._clock,
            requests=Requests(self._broker),
            kind=self._kind,
        )

    def __enter__(self) -> Self:
        _one_at_a_time.acquire()
        try:
            return super().__enter__()
        except BaseException:
            _one_at_a_time.release()
            raise

    def __exit__(self, *error: object) -> None:
        self._is_index_lost = any(isinstance(each, IndexFault) for each in error)
        try:
            super().__exit__(*error)
        finally:
            _one_at_a_time.release()

    def stop(self, queue: str, timeout_ms: int) -> None:
        """Stop a worker. What was paid for is stored first, and what was not sent costs nothing.

        An index that is lost takes nothing more.
        """
        if queue in ("embed", "store") and not self._is_index_lost:
            try:
                self._broker.join(queue, timeout=STOP_TIMEOUT_MS, fail_fast=False)
            except dramatiq.errors.QueueJoinTimeout:
                # A call that hangs was waited for.
                timeout_ms = 0 if queue == "embed" else timeout_ms
        super().stop(queue, timeout_ms)

    def check(self, *, wants_vectors: bool = True) -> str:
        """Raise the last error that ended an actor, if any: a command that waits ends with it."""
        if (fault := queue_broker.last_error()) is not None:
            raise fault
        return ""

    def tick(self) -> None:
        """Raise IndexCorrupt when a worker met it; other errors are logged, and their work is done again."""
        if isinstance(fault := queue_broker.last_error(), IndexCorrupt):
            raise fault


def _share_one_heap() -> None:
    """Let threads that are started from now on take memory from one heap, where the C library is glibc.

    It gives each a heap of its own, which keeps the room of the largest answer: 7,000 vectors of 1,536 were
    indexed with 153 MB at most, so with 111, in the same time.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def workers_of(settings: Settings, agent: AgentSettings, *, clock: Clock) -> InProcessWorkers | FleetWorkers:
    """Return the workers of a run for an agent: those of the fleet, else threads of this process."""
    if settings.queue:
        return FleetWorkers(settings.queue, agent)
    return InProcessWorkers(settings, clock=clock)
