"""What commands share that run until they are told to end: signals, logs, liveness."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from memline.shared import logs
from memline.shared.config import environment
from memline.shared.liveness import Liveness


def liveness() -> Liveness:
    """Return what tells systemd, or the check of a container, how this process is doing."""
    return Liveness(*environment.liveness())


def write_log(*, default_level: str = "WARNING") -> None:
    """Write this command's log lines, as `MEMLINE_LOG_LEVEL` and `MEMLINE_LOG_FORMAT` say.

    Neither they nor anything else on standard error waits for a reader from here on.
    """
    logs.protect_errors()
    logs.configure(*environment.log_options(default=default_level))


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; a second signal changes nothing, a third ends the process.

    A supervisor that signals the whole process group reaches a process twice, once itself and once through
    its parent. Taken for "end now", the second threw away what was paid for. The handlers before are restored
    at the end; but a process that was told to end, and runs until then, is told no more while it ends.
    """
    stop = threading.Event()
    signals = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        # In a thread: the lock of an event cannot be taken twice, and the main thread, which runs this
        # handler, may just hold it in `stop.wait`. The process would hang for ever.
        _thread.start_new_thread(stop.set, ())
        if signals > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            is_ending = signals and number == signal.SIGTERM and handler != signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if is_ending else handler)
