"""What a worker process of a fleet does besides its actors: joins the queue, lets one writer write."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO

import dramatiq
from dramatiq.middleware import Middleware

from shared import logs
from shared.config import environment
from shared.config.load import load
from shared.config.schema import Settings
from shared.errors import IndexUnwritable, MemlineError
from shared.logs import Log
from shared.queue.broker import on_redis
from shared.queue.dead import DeadLetters
from shared.queue.deliveries import OnlyOurs
from shared.queue.fleet import FleetBroker
from shared.queue.messages import Sweep
from shared.queue.patience import Patience
from shared.queue.presence import Presence
from shared.queue.send import send
from workers import runtime
from workers.life import Ending, MessageFields

#: Seconds a worker that has something to send waits for a Redis that is away, before it gives the work up:
#: what it holds may be paid for.
PATIENCE_S = 600.0

#: Seconds between two tries of a second store process to become the only one.
RETRY_S = 0.5


def join_fleet() -> dramatiq.Broker:
    """The broker of this worker process, from configuration and environment; logs begin here too.

    What keeps it from starting is one line of the log and the end of the process, not a traceback.
    """
    try:
        logs.configure(*environment.log_options(default="INFO"))
        settings = load().settings
        patience = Patience(settings.queue.url, seconds=PATIENCE_S)
        broker = on_redis(
            settings.queue.url,
            patience=patience,
            middleware=[
                Ending(),
                MessageFields(),
                OnlyOurs(),
                DeadLetters(),
                Presence(),
                StoreGuard(settings),
                TakeUpBatches(settings),
            ],
        )
        runtime.use(runtime.Runtime.of_fleet(settings, patience))
        return broker
    except MemlineError as error:
        # Straight to the terminal: dramatiq's parent may be gone before it has read our pipe.
        logs.configure(stream=sys.__stderr__)
        Log("worker").error("worker.cannot_start", error=error.message, action=error.hint)
        raise SystemExit(error.exit_code) from None


class TakeUpBatches(Middleware):
    """Lets a batch worker that starts take up at once what the one before was killed in the middle of."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def after_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        if "batch" in (worker.consumer_whitelist or {"batch"}):
            for agent in self._settings.agents:
                send(Sweep(agent=agent, deep=True))


class StoreGuard(Middleware):
    """Lets one store process at a time work on the indexes of a home; a second one waits, and says so."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock: IO[str] | None = None
        self._log = Log("store")

    def before_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        if "store" in (worker.consumer_whitelist or {"store"}):
            self._lock = self._wait_for(self._settings.home / "store.lock")
            assert isinstance(broker, FleetBroker)
            broker.take_over("store")

    def after_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        if self._lock is not None:
            # Rows may wait from before: open every index and send out what is there.
            here = runtime.current()
            here.bell.start()
            for agent in self._settings.agents:
                send(Sweep(agent=agent, deep=True))

    def after_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        runtime.current().close()
        if self._lock is not None:
            self._lock.close()

    def _wait_for(self, path: Path) -> IO[str]:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = path.open("a+")
        except OSError as error:
            raise IndexUnwritable(
                f"cannot write {path}: {error.strerror}", hint="set MEMLINE_HOME"
            ) from error
        before = signal.signal(signal.SIGTERM, _end_at_once)
        told = False
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not told:
                        lock.seek(0)
                        self._log.warning("store.waits", holder=lock.read().strip(), lock=str(path))
                        told = True
                    time.sleep(RETRY_S)
        finally:
            signal.signal(signal.SIGTERM, before)
        lock.seek(0)
        lock.truncate()
        lock.write(f"pid {os.getpid()}\n")
        lock.flush()
        return lock


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    """While waiting there is nothing to finish."""
    raise SystemExit(0)
