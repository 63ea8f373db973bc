"""Run the whole pipeline in one process: the composition root, which alone imports producers and workers.

The actors are those of the fleet; only the broker differs.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from memline.shared.clock import Clock
from memline.shared.config.agents import Settings
from memline.shared.errors import IndexCorrupt
from memline.shared.queue import broker as queue_broker
from memline.shared.queue.routes import INDEXING, QUEUES, uses_batches
from memline.workers.context import Context
from memline.workers.process import serve_queues

#: Milliseconds an idle thread sleeps before it looks whether it should stop: short for a command that ends,
#: longer for `up`, where some eighteen threads wake as often, for weeks.
IDLE_MS = {"index": 50, "up": 300}

#: New objects after which garbage is collected: some fifty requests.
COLLECT_AFTER = 2_000

#: Milliseconds a stop waits for running calls; a provider that hangs is left to its daemon thread.
STOP_TIMEOUT_MS = 5_000

#: Held by the workers that run: broker, actors and context are the process's, so two sets of workers would
#: take each other's messages, and the end of one would leave the other without a context.
_one_at_a_time = threading.Lock()

#: The option of mallopt(3), as malloc.h has it.
_M_ARENA_MAX = -8


@contextmanager
def local_workers(
    settings: Settings, *, kind: str = "index", clock: Clock | None = None
) -> Iterator[Callable[..., str]]:
    """Run the workers without a fleet; gives what raises an error of theirs that ends a process of this kind.

    `kind`: `index`, which any error of an actor ends, or `up`, which only IndexCorrupt does: others are
    logged, and their work is done again. One set of workers runs at a time: a second one waits for its end.
    """
    fatal = IndexCorrupt if kind == "up" else Exception

    def check(**_: bool) -> str:
        if isinstance(fault := queue_broker.last_error(), fatal):
            raise fault
        return ""

    with _one_at_a_time:
        if "memline.producers.start" in sys.modules:
            # A request of httpx is a cycle that holds its texts: 60,000 texts took 60 MB until they were
            # collected, 220,000 took 240 MB. Collecting sooner takes no more time.
            gc.set_threshold(COLLECT_AFTER)
            # glibc gives each thread a heap of its own, which keeps the room of the largest answer: with one
            # heap 7,000 vectors were indexed with 111 MB at most instead of 153, in the same time. A program
            # that uses `Memory` may have threads of its own.
            with suppress(AttributeError, OSError):
                ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
        broker = queue_broker.in_process()
        context = Context(settings, clock=clock, kind=kind)
        # A worker for batches runs when some agent uses them, or has left one open.
        has_batches = any(map(uses_batches, settings.agents.values()))
        threads_of = {queue: QUEUES[queue] for queue in (*INDEXING, *["batch"] * has_batches)}
        with serve_queues(broker, context, threads_of, idle_ms=IDLE_MS[kind], stop_ms=STOP_TIMEOUT_MS):
            yield check
