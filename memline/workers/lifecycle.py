"""Start the workers of some queues in this process, and end them in order."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import dramatiq
from dramatiq.middleware import Middleware

from memline.shared import logs
from memline.shared.config.config_file import for_owner
from memline.shared.config.schema import Settings
from memline.shared.errors import IndexUnwritable
from memline.shared.liveness import Liveness
from memline.shared.logs import Log
from memline.shared.queue import fleet_owner
from memline.shared.queue.broker import on_redis, send
from memline.shared.queue.heartbeat import Heartbeat
from memline.shared.queue.in_flight import RedisRequests
from memline.shared.queue.messages import Sweep, agent_of
from memline.shared.queue.redis_client import RetryPolicy
from memline.shared.queue.redis_limits import RedisLimits
from memline.shared.queue.routes import QUEUES
from memline.workers.context import Context, use

#: Seconds a worker that has something to send waits for a Redis that is away, before it gives the work up:
#: what it holds may be paid for.
MAX_WAIT_S = 600.0

#: Seconds a process that was told to stop goes on trying to send and acknowledge while Redis is away.
LAST_TRIES_S = 5.0

#: Milliseconds it waits for running messages. A provider that answers does so within that time and is not
#: paid again; one that hangs is left to its daemon thread, and the request is sent again later.
SHUTDOWN_MS = 15_000

#: Milliseconds an idle consumer sleeps at most before it asks Redis for messages again. Measured with 100: a
#: message waits 29 ms (p50) on an idle queue, which takes 1.4 % of a core.
IDLE_MS = 100
IDLE_QUERY_MS = 20

#: Seconds between two looks whether the process still works when no supervisor asks for more.
LOOK_EVERY_S = 1.5

#: Seconds between two tries of a second store process to become the only one.
LOCK_EVERY_S = 0.5


def run(
    settings: Settings,
    threads_of: Mapping[str, int],
    stop: threading.Event,
    *,
    liveness: Liveness | None = None,
) -> None:
    """Work on messages of the queues of `threads_of`, each with so many threads, until `stop` is set.

    What is running then is finished, what was fetched goes back on its queue. Raises QueueError when Redis
    cannot be trusted with messages, and the error that ended the work when it was not `stop`.
    """
    url, liveness = settings.queue.address, liveness or Liveness()
    retry = RetryPolicy(url, max_wait_s=MAX_WAIT_S)
    heartbeat = ShowAlive()
    broker = on_redis(url, retry=retry, middleware=[LogFields(), heartbeat])
    if any(QUEUES[role].is_beside_index for role in threads_of):
        fleet_owner.refuse_other(url, settings.home, is_claimed="store" in threads_of)
    context = Context(
        settings,
        limits=RedisLimits(url, retry),
        in_flight=RedisRequests(url),
        stopping=stop,
        kind="store",
    )
    use(context)
    declare_actors(threads_of)
    # One that waits for its turn is ready too, else its start fails after some time.
    liveness.ready()
    with only_store(settings.home, stop, liveness) if "store" in threads_of else nullcontext():
        if stop.is_set():
            return
        if "store" in threads_of:
            context.sweep_timer.start()
        workers = start(broker, threads_of)
        heartbeat.start(url, broker.broker_id, threads_of, file=settings.file)
        if {"store", "batch"} & set(threads_of):
            # Rows may wait from before, and a batch that a killed process was in the middle of.
            for agent in settings.agents:
                send(Sweep(agent=agent, deep=True))
        Log("worker").info("worker.started", queues=",".join(threads_of), pid=os.getpid())
        while not stop.wait(liveness.every_s or LOOK_EVERY_S):
            liveness.alive()
        liveness.stopping()
        retry.stop_after(LAST_TRIES_S)
        heartbeat.stop(context.failure.message if context.failure else "")
        store = workers.pop("store", None)
        stop_together(workers.values(), timeout_ms=SHUTDOWN_MS)
        if store is not None:
            store.stop(timeout=SHUTDOWN_MS)
        context.close()
        if context.failure is not None:
            raise context.failure


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


@contextmanager
def only_store(home: Path, stop: threading.Event, liveness: Liveness) -> Iterator[None]:
    """Wait until this process is the only one that dispatches the indexes of a home, or `stop` is set."""
    path = home / "store.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = open(path, "a+", opener=for_owner)  # noqa: SIM115
    except OSError as error:
        raise IndexUnwritable(f"cannot write {path}: {error.strerror}", hint="set MEMLINE_HOME") from error
    with lock:
        is_told = False
        while not stop.is_set():
            lock.seek(0)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not is_told:
                    Log("store").warning("store.waits", holder=lock.read().strip(), lock=str(path))
                    is_told = True
                liveness.alive()
                stop.wait(LOCK_EVERY_S)
                continue
            lock.truncate()
            lock.write(f"pid {os.getpid()}\n")
            lock.flush()
            break
        yield


class ShowAlive(Heartbeat, Middleware):
    """Tells Redis what this process works on."""


class LogFields(Middleware):
    """Puts queue, message id, actor and agent on every log line of a thread that works on a message."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def before_process_message(self, broker: Any, message: Any) -> None:
        self._thread.context = logs.context(
            queue=message.queue_name,
            message_id=message.message_id,
            actor=message.actor_name,
            agent=agent_of(message.args),
        )
        self._thread.context.__enter__()

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        self._thread.context.__exit__(None, None, None)

    after_skip_message = after_process_message
