"""Run the calls of a server in threads, a few at a time."""

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from memline.shared.errors import MemlineError

#: Calls that may wait for a thread; more are refused, since their clients would have given up.
MAX_WAITING = 256

T = TypeVar("T")


class Overloaded(MemlineError):
    """Too many calls wait, or one took too long; the same call may work later."""


class Pool:
    """Runs calls for one event loop, `threads` at a time."""

    def __init__(self, threads: int, *, timeout_s: float) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._timeout_s = timeout_s

    async def run(self, call: Callable[[], T]) -> T:
        """Return what the call returns; raise what it raises, and Overloaded.

        A call that takes too long goes on in its thread; its result is dropped.
        """
        if self._limiter.statistics().tasks_waiting >= MAX_WAITING:
            raise Overloaded("too many calls at once", hint="try again")
        with anyio.move_on_after(self._timeout_s):
            return await anyio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)
        raise Overloaded(f"no answer within {self._timeout_s:g} s", hint="try again, or ask for less")
