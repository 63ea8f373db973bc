"""How long a process goes on trying while Redis is away or full: what it holds may be paid for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import redis
import tenacity

from shared.queue import server

#: Troubles that pass: Redis restarts, is busy, is full for a moment.
PASSING = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.OutOfMemoryError)

#: Seconds between two tries at most.
MAX_PAUSE_S = 1.0

P = ParamSpec("P")
R = TypeVar("R")


class Patience:
    """Calls a function of Redis again while the trouble may pass. Shared by all threads of a process."""

    def __init__(self, url: str, *, seconds: float = 0.0) -> None:
        """`seconds`: how long one call goes on trying; 0 tries once."""
        self._url = url
        self._seconds = seconds
        self._end = float("inf")
        self._tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_passes),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=MAX_PAUSE_S),
            stop=self._is_over,
            reraise=True,
        )

    def __call__(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function gives. Raises QueueError when the patience is over, or trying is no use."""
        with server.translated(self._url):
            return self._tries.copy()(function, *args, **kwargs)

    def end_in(self, seconds: float) -> None:
        """The process is told to stop: no call tries for longer than `seconds` from now."""
        self._end = min(self._end, time.monotonic() + seconds)

    def _is_over(self, state: Any) -> bool:
        waited_s = state.seconds_since_start or 0.0
        return waited_s >= self._seconds or time.monotonic() >= self._end


def _passes(error: BaseException) -> bool:
    # redis-py takes a wrong password for a trouble of the connection.
    return isinstance(error, PASSING) and not isinstance(error, redis.AuthenticationError)
