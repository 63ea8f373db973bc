"""What commands share that run until they are told to end: signals, the list of processes, logs, liveness."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from memline.producers.cli.invocation import Invocation, echo
from memline.shared import logs
from memline.shared.config import environment
from memline.shared.config.live import LOOK_EVERY_S, Changed, SettingsWatch
from memline.shared.config.schema import AgentSettings
from memline.shared.liveness import Liveness
from memline.shared.log_stream import protect_errors
from memline.shared.scheduling.home_processes import registered

if TYPE_CHECKING:
    from types import FrameType


class StopEvent(threading.Event):
    """An event that signals set, and that a process may set itself."""

    #: Whether a signal did.
    is_told = False


def watch_of(invocation: Invocation, *, restarts: bool = True) -> SettingsWatch:
    """Return what sees that the settings of this process changed; `restarts`: as in `SettingsWatch`."""
    return SettingsWatch(invocation.loaded, invocation.options, restarts=restarts)


def start_again(changed: Changed | None, stop: StopEvent) -> None:
    """Execute this process anew, with the same arguments and pid, when settings changed that it takes so.

    For the inside of `stop_event`: a signal that came meanwhile ends the process instead.
    """
    if changed is None:
        return
    # Nothing is in hand any more. A signal that a handler took from here on would be lost with this program.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if stop.is_told:
        return
    echo(f"memline: the settings changed ({changed.words}): this process starts again with them", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[environment.STARTED_AGAIN] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """Look at the settings now and then, in a thread, while a block runs."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(LOOK_EVERY_S):
            look()

    thread = threading.Thread(target=run, name="settings", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def listed(
    invocation: Invocation, kind: str, agents: Sequence[AgentSettings], watch: SettingsWatch
) -> AbstractContextManager[None]:
    """List this process among those of its home while a block runs; `kind` is that of its command.

    So is what `watch` sees that the process does not take.
    """
    names = [settings.agent for settings in agents]
    return registered(invocation.agents()[0].account_path, kind, names, time.time(), watch)


def liveness() -> Liveness:
    """Return what tells systemd, or the check of a container, how this process is doing."""
    return Liveness(*environment.liveness())


def write_log(*, default_level: str = "WARNING") -> None:
    """Write this command's log lines, as `MEMLINE_LOG_LEVEL` and `MEMLINE_LOG_FORMAT` say.

    Neither they nor anything else on standard error waits for a reader from here on.
    """
    protect_errors()
    logs.configure(*environment.log_options(default=default_level))


@contextmanager
def stop_event() -> Iterator[StopEvent]:
    """Give an event that SIGINT and SIGTERM set; a second signal changes nothing, a third ends the process.

    A supervisor that signals the whole process group reaches a process twice, once itself and once through
    its parent. Taken for "end now", the second threw away what was paid for. The handlers before are restored
    at the end; but a process that was told to end, and runs until then, is told no more while it ends.
    """
    stop = StopEvent()
    signals = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        stop.is_told = True
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
