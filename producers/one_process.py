"""Everything in one process: the composition root, and the one module that knows producers and workers.

The actors are those of the fleet; only the broker differs. Each queue has a dramatiq worker of its own, so
that `store` keeps its single thread and a provider that hangs holds up nothing else.
"""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import dramatiq

from shared.clock import Clock
from shared.config.schema import AgentSettings, Settings
from shared.errors import IndexFault
from shared.index.batches import open_batches
from shared.index.driver import reading_if_any
from shared.queue import broker as queue_broker
from shared.queue.messages import Sweep
from shared.queue.send import send

#: Threads a queue. Reading and splitting hold the interpreter lock: two hide the disk, more do not help.
THREADS = {"chunk": 2, "store": 1, "embed": 4, "batch": 2, "query": 2, "flush": 1}

#: The queues of a command that brings an index up to date.
INDEXING = ("chunk", "store", "embed")

#: Milliseconds an idle thread sleeps before it looks whether it should stop: short for commands that end,
#: longer for `up`, where some eighteen threads wake as often, for weeks.
STOP_CHECK_MS = 50
IDLE_CHECK_MS = 300

#: Milliseconds a stop waits for running calls; a provider that hangs is left to its daemon thread.
STOP_TIMEOUT_MS = 5_000


class OneProcess:
    """The running pipeline of this process; a context manager."""

    def __init__(
        self,
        settings: Settings,
        *,
        queues: tuple[str, ...] = INDEXING,
        long_lived: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        """A worker for batches is there when some agent uses them, or has left one open."""
        is_any_batch = any(_has_batches(agent) for agent in settings.agents.values())
        self._queues = (*queues, "batch") if is_any_batch else queues
        self._check_ms = IDLE_CHECK_MS if long_lived else STOP_CHECK_MS
        self._clock = clock
        self._workers: dict[str, dramatiq.Worker] = {}

    def __enter__(self) -> OneProcess:
        # Its one warning is about several workers a process, which is what we want here.
        logging.getLogger("dramatiq.broker.StubBroker").setLevel(logging.ERROR)
        self._broker = queue_broker.in_process()
        import workers  # noqa: F401  (declares the actors)
        from workers import runtime

        queue_broker.forget_messages(self._broker)
        queue_broker.faults(self._broker).last = None
        self.runtime = runtime.Runtime(self._settings, clock=self._clock)
        self.runtime.serves_batches = lambda: "batch" in self._queues
        runtime.use(self.runtime)
        self.runtime.bell.start()
        for queue in self._queues:
            worker = dramatiq.Worker(
                self._broker,
                queues={queue},
                worker_threads=THREADS[queue],
                worker_timeout=self._check_ms,
            )
            worker.start()
            self._workers[queue] = worker
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from workers import runtime

        self.runtime.bell.stop()
        self.runtime.stopping.set()
        # Those who make work stop first, together, so that what was paid for is still stored.
        store = self._workers.pop("store", None)
        with ThreadPoolExecutor(max_workers=len(THREADS)) as pool:
            for worker in self._workers.values():
                pool.submit(worker.stop, timeout=STOP_TIMEOUT_MS)
        if store is not None:
            if not isinstance(error, IndexFault):
                with contextlib.suppress(dramatiq.errors.QueueJoinTimeout):
                    self._broker.join("store", timeout=STOP_TIMEOUT_MS, fail_fast=False)
            store.stop(timeout=STOP_TIMEOUT_MS)
        self._workers.clear()
        self.runtime.close()
        runtime.use(None)

    def wake(self, agent: str) -> None:
        """Open the agent's index in the store worker and send out what waits there already."""
        send(Sweep(agent=agent))

    def fault(self) -> BaseException | None:
        """The last error an actor ended with, if any: the one a waiting command ends with."""
        return queue_broker.faults(self._broker).last


def _has_batches(agent: AgentSettings) -> bool:
    if agent.memory.remote.batch.enabled:
        return True
    try:
        with reading_if_any(agent.index_path) as reader:
            return reader is not None and bool(open_batches(reader))
    except IndexFault:
        # Whoever opens it for the work says what is wrong with it.
        return False
