"""Connect to Redis: clients, their retry policy, and what must be true of the server.

The only module that makes Redis clients. Errors are translated here, and the URL is shown without its
password. redis is imported late, and tenacity: together 47 ms, which a process without a queue never needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

import redis

from memline.shared.config.installation import mask_url
from memline.shared.errors import QueueError
from memline.shared.logs import Log

#: All our keys begin with it and, below it, the name of their fleet. So do the names of our connections,
#: which tell a client its keys, and an operator (`CLIENT LIST`) whose they are.
NAMESPACE = "memline"

#: Seconds a command may take. A healthy Redis answers in a millisecond; a Redis that saves, in a few.
SOCKET_TIMEOUT_S = 5.0

#: The same for one who only looks, and says what he sees: he waits once, and for less than a page may be old.
LOOK_TIMEOUT_S = 1.0

#: Seconds longer than it may block that a blocking read waits for its answer; redis-py's own time limit of
#: 5 s cut blocking reads short.
BLOCK_MARGIN_S = 5.0

#: Seconds between two attempts at most.
MAX_BACKOFF_S = 1.0

#: Seconds between two lines of the log about what is waited for.
LOGGED_EVERY_S = 30.0

P = ParamSpec("P")
R = TypeVar("R")

_PASSWORD = (
    "set its password in MEMLINE_QUEUE_URL or queue.url (redis://:PASSWORD@host:6379/0), and start the"
    " processes that use it again"
)


def client(url: str, *, block_s: float | None = None, protocol: int = 3, looks: bool = False) -> redis.Redis:
    """Make a client for `url`, whose fragment names the fleet (`QueueSettings.address`).

    With `block_s` it is for reads that block so many seconds at most. `protocol` is that of Redis: 2 or 3.
    `looks`: for one who only looks.
    """
    url, _, name = url.rpartition("#") if "#" in url else (url, "", "")
    path = "" if url.startswith("unix:") else urlsplit(url).path.strip("/")
    timeout_s = LOOK_TIMEOUT_S if looks else SOCKET_TIMEOUT_S
    try:
        if path and not path.isdigit():
            # redis-py takes database 0 for whatever it cannot read, as the rest of a password with a slash.
            raise ValueError
        return redis.Redis.from_url(
            url,
            socket_timeout=timeout_s if block_s is None else block_s + BLOCK_MARGIN_S,
            socket_connect_timeout=timeout_s,
            # A restart of Redis closes idle connections: the next command finds out and tries once more.
            # Longer troubles, and all that takes its whole time, are the business of a `RetryPolicy`.
            retry=redis.retry.Retry(
                redis.backoff.ExponentialWithJitterBackoff(cap=0.2, base=0.02),
                retries=2,
                supported_errors=(redis.ConnectionError,),
            ),
            health_check_interval=30,
            protocol=protocol,
            client_name=f"{NAMESPACE}:{name}" if name else NAMESPACE,
        )
    except ValueError:
        # Its words quote the URL, which may be cut within the password.
        raise QueueError(
            f"queue.url {mask_url(url)} is not a valid Redis URL",
            hint="write it as redis://127.0.0.1:6379/0, with the number of a database; in a password write"
            " # / ? @ : as %23 %2F %3F %40 %3A",
        ) from None


def check(url: str) -> None:
    """Check that the server can be trusted with messages. Raises QueueError with what to change.

    An eviction policy other than `noeviction` drops messages silently when memory is short. A server that is
    full takes no message at all.
    """
    with connected(url) as server:
        if error := trouble(server, server.info("memory"), url):
            raise error


def trouble(server: redis.Redis, memory: Any, url: str) -> QueueError | None:
    """Say why a server that answers drops messages, or refuses them; `memory`: that section of its INFO.

    Raises redis errors of the connection.
    """
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction" and int(memory.get("maxmemory", 0)):
        return QueueError(
            f"{mask_url(url).partition('#')[0]} evicts keys when memory is short"
            f" (maxmemory-policy {policy}), so messages would be lost silently",
            hint="redis-cli config set maxmemory-policy noeviction",
        )
    try:
        check_writable(server)
    except redis.ResponseError as error:
        return translate(error, url)
    return None


def check_writable(server: redis.Redis) -> None:
    """Write something small, which a replica and a server that is full refuse."""
    server.set(key(server, "check"), 1, px=1)


@contextmanager
def connected(url: str) -> Iterator[redis.Redis]:
    """Give a client for a block; errors of Redis in it are QueueErrors."""
    with closing(client(url)) as server, translated(url):
        yield server


def namespace(server: redis.Redis) -> str:
    """Tell what all keys of the client's fleet begin with."""
    return str(server.get_connection_kwargs()["client_name"])


def now(server: redis.Redis) -> float:
    """Tell the time by the clock of Redis, in seconds since the epoch."""
    seconds, microseconds = server.time()
    return seconds + microseconds / 1e6


def key(server: redis.Redis, name: str) -> str:
    """Name a key of the client's fleet."""
    return f"{namespace(server)}:{name}"


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn redis-py's exceptions into QueueErrors that say what to do."""
    try:
        yield
    except redis.RedisError as error:
        raise translate(error, url) from error


def translate(error: redis.RedisError, url: str) -> QueueError:
    """Say an error of redis-py in our words, with what to do."""
    where, text = f"Redis at {mask_url(url).partition('#')[0]}", str(error)
    if isinstance(error, redis.AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        return QueueError(f"{where} refuses the password", hint=_PASSWORD)
    if is_full(error):
        problem = f"{where} is out of memory; the backlog is safe in the index"
        return QueueError(problem, hint="raise maxmemory: redis-cli config set maxmemory 256mb")
    if isinstance(error, redis.exceptions.ReadOnlyError):
        return QueueError(f"{where} is a read-only replica", hint="set queue.url to the primary server")
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        hint = "start it (redis-server), check queue.url, or work without it: unset queue.url"
        return QueueError(f"{where} cannot be reached: {text}", hint=hint)
    return QueueError(
        f"{where}: {text}", hint="check queue.url: one Redis server, and a user that may use it"
    )


class RetryPolicy:
    """Calls a function again while it raises QueueError. Shared by all threads of a process.

    Redis restarts, is full or busy, is a replica for a moment, or was given another password: to wait loses
    nothing, to give up may lose what was paid for. What is wrong from the start, `check` says at once.
    """

    def __init__(self, url: str, *, max_wait_s: float = 0.0) -> None:
        """`max_wait_s`: how long one call goes on trying; 0 tries once."""
        import tenacity

        self._url = url
        self._max_wait_s = max_wait_s
        self._deadline = float("inf")
        self._logged_at = 0.0
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(QueueError),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=MAX_BACKOFF_S),
            stop=self._is_over,
            before_sleep=self._log,
            reraise=True,
        )

    def __call__(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function. Raises QueueError when the time is over."""

        def attempt() -> R:
            with translated(self._url):
                return function(*args, **kwargs)

        return self._retrying.copy()(attempt)

    def stop_after(self, seconds: float) -> None:
        """Let no call try for longer than `seconds` from now: the process is told to stop."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def _log(self, state: Any) -> None:
        """Log what is waited for, now and then: at the start of a process nothing else says it."""
        now, error = time.monotonic(), state.outcome.exception()
        if (state.seconds_since_start or 0.0) >= MAX_BACKOFF_S and now >= self._logged_at + LOGGED_EVERY_S:
            self._logged_at = now
            Log("queue").warning("redis.waited_for", error=error.message, action=error.hint)

    def _is_over(self, state: Any) -> bool:
        waited_s = state.seconds_since_start or 0.0
        return waited_s >= self._max_wait_s or time.monotonic() >= self._deadline


def is_away(error: BaseException) -> bool:
    """Tell whether the server did not answer."""
    return isinstance(error, redis.ConnectionError | redis.TimeoutError)


def is_full(error: BaseException) -> bool:
    """Tell whether the server has no memory left.

    Redis 6 says of a script that it did not run, with the reason in its text.
    """
    is_scripts = isinstance(error, redis.ResponseError) and "OOM command not allowed" in str(error)
    return isinstance(error, redis.exceptions.OutOfMemoryError) or is_scripts
