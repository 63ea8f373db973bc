"""The life of a worker process beside its work: what its log lines carry, and how it ends."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import AbstractContextManager
from typing import Any

import dramatiq
from dramatiq.middleware import Middleware

from shared import logs
from shared.logs import Log
from shared.queue.fleet import FleetBroker
from workers import runtime

#: Seconds a process that was told to stop goes on trying to send and acknowledge while Redis is away.
LAST_TRIES_S = 5.0

#: Seconds between two looks whether the parent still lives.
PARENT_EVERY_S = 1.0


class MessageFields(Middleware):
    """Puts queue, message id, actor and agent on every log line of a thread that works on a message."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def before_process_message(self, broker: dramatiq.Broker, message: dramatiq.broker.MessageProxy) -> None:
        first: Any = message.args[0] if message.args else None
        agent = first.get("agent", "") if isinstance(first, dict) else ""
        context: AbstractContextManager[None] = logs.context(
            queue=message.queue_name, message_id=message.message_id, actor=message.actor_name, agent=agent
        )
        context.__enter__()
        self._thread.context = context

    def after_process_message(
        self,
        broker: dramatiq.Broker,
        message: dramatiq.broker.MessageProxy,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        self._thread.context.__exit__(None, None, None)

    def after_skip_message(self, broker: dramatiq.Broker, message: dramatiq.broker.MessageProxy) -> None:
        self._thread.context.__exit__(None, None, None)


class Ending(Middleware):
    """Ends a worker process within seconds when it is told to, and when its parent is gone.

    A worker is a child of `dramatiq workers`. A parent that is killed cannot tell it, and nobody else knows
    of it: it would work on for ever beside its successor.
    """

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._stop = threading.Event()
        self._log = Log("worker")

    def before_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        # Before everything else, as the store guard may wait here for long.
        threading.Thread(target=self._watch, name="parent", daemon=True).start()

    def before_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        self._stop.set()
        runtime.current().stopping.set()
        assert isinstance(broker, FleetBroker)
        broker.stop_waiting(LAST_TRIES_S)

    def _watch(self) -> None:
        while not self._stop.wait(PARENT_EVERY_S):
            if os.getppid() != self._parent:
                self._log.error("parent.gone", pid=os.getpid())
                os.kill(os.getpid(), signal.SIGTERM)
                return
