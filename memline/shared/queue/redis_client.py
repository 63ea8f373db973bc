"""Connect to Redis: the one place that makes clients, says their errors, and checks the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis
import tenacity
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from memline.shared.config.installation import QueueAddress, mask_url
from memline.shared.errors import QueueError

#: All our keys and the names of our connections begin with it; the name of their fleet follows.
NAMESPACE = "memline"

#: Seconds a command may take. A healthy Redis answers in a millisecond; a Redis that saves, in a few.
SOCKET_TIMEOUT_S = 5.0

#: The same for one who only looks, and says what he sees: he waits once, and for less than a page may be old.
LOOK_TIMEOUT_S = 1.0

#: Seconds between two attempts at most.
MAX_BACKOFF_S = 1.0

#: Seconds a process that was told to stop goes on trying to send while Redis is away.
LAST_TRIES_S = 5.0


class FleetClient(redis.Redis):
    """A client of the Redis of a fleet: knows the fleet's keys, and says errors in our words.

    Its commands raise QueueError where redis-py's raise their own errors.
    """

    address = QueueAddress()
    #: What all keys of the fleet begin with.
    namespace = NAMESPACE
    #: What it raises; dramatiq's broker needs errors of its own.
    raises: type[QueueError] = QueueError

    def key(self, name: str) -> str:
        """Name a key of the fleet."""
        return f"{self.namespace}:{name}"

    def execute_command(self, *args: Any, **options: Any) -> Any:
        with self._translated():
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def execute(self, pipeline: Any) -> Any:
        """Send the commands of a pipeline and return their answers."""
        with self._translated():
            return pipeline.execute()

    def now(self) -> float:
        """Tell the time by the clock of Redis, in seconds since the epoch."""
        seconds, microseconds = self.time()
        return float(seconds + microseconds / 1e6)

    def trouble(self) -> QueueError | None:
        """Say why the server drops messages, or refuses them."""
        memory: Any = self.info("memory")
        policy = str(memory.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction" and int(memory.get("maxmemory", 0)):
            return QueueError(
                f"{mask_url(self.address.url)} evicts keys when memory is short (maxmemory-policy {policy}),"
                " so messages would be lost silently",
                hint="redis-cli config set maxmemory-policy noeviction",
            )
        try:
            # A replica and a server that is full refuse it.
            self.set(self.key("check"), 1, px=1)
        except QueueError as error:
            return error
        return None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except NoScriptError:
            # redis-py loads the script then, and calls it again.
            raise
        except redis.RedisError as error:
            problem = translate(error, self.address)
            raise self.raises(problem.message, hint=problem.hint) from error


def client(address: QueueAddress, *, looks: bool = False) -> FleetClient:
    """Make a client; nothing is connected yet. `looks`: for one who only looks.

    Raises QueueError for an address that is not valid.
    """
    timeout_s = LOOK_TIMEOUT_S if looks else SOCKET_TIMEOUT_S
    namespace = f"{NAMESPACE}:{address.name}" if address.name else NAMESPACE
    try:
        path = "" if address.url.startswith("unix:") else urlsplit(address.url).path.strip("/")
        if path and not path.isdigit():
            # redis-py takes database 0 for whatever it cannot read, as the rest of a password with a slash.
            raise ValueError
        made: FleetClient = FleetClient.from_url(  # type: ignore[assignment]
            address.url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # A restart of Redis closes idle connections: the next command finds out and tries once more.
            # Longer troubles, and all that takes its whole time, are the business of `retrying`.
            retry=Retry(
                ExponentialWithJitterBackoff(cap=0.2, base=0.02),
                retries=2,
                supported_errors=(redis.ConnectionError,),
            ),
            health_check_interval=30,
            client_name=namespace,
        )
    except ValueError:
        # Its words quote the URL, which may be cut within the password.
        raise QueueError(
            f"queue.url {mask_url(address.url)} is not a valid Redis URL",
            hint="write it as redis://127.0.0.1:6379/0, with the number of a database; in a password write"
            " # / ? @ : as %23 %2F %3F %40 %3A",
        ) from None
    made.address, made.namespace = address, namespace
    return made


def check(address: QueueAddress) -> None:
    """Check that the server can be trusted with messages. Raises QueueError with what to change."""
    with closing(client(address)) as server:
        if error := server.trouble():
            raise error


def translate(error: redis.RedisError, address: QueueAddress) -> QueueError:
    """Say an error of redis-py in our words, with what to do."""
    where, text = f"Redis at {mask_url(address.url)}", str(error)
    if isinstance(error, redis.AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        hint = "set its password in MEMLINE_QUEUE_URL or queue.url (redis://:PASSWORD@host:6379/0), and start"
        return QueueError(f"{where} refuses the password", hint=f"{hint} the processes that use it again")
    # Redis 6 says of a script that it did not run, with the reason in its text.
    if isinstance(error, redis.exceptions.OutOfMemoryError) or "OOM command not allowed" in text:
        problem = f"{where} is out of memory; the backlog is safe in the index"
        return QueueError(problem, hint="raise maxmemory: redis-cli config set maxmemory 256mb")
    if isinstance(error, redis.exceptions.ReadOnlyError):
        return QueueError(f"{where} is a read-only replica", hint="set queue.url to the primary server")
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        hint = "start it (redis-server), check queue.url, or unset it (MEMLINE_QUEUE_URL) to work without"
        return QueueError(f"{where} cannot be reached: {text}", hint=hint)
    hint = "check queue.url: one Redis server, and a user that may use it"
    return QueueError(f"{where}: {text}", hint=hint)


def retrying(max_wait_s: float, stopping: threading.Event | None = None) -> tenacity.Retrying:
    """Make what calls a function again while it raises QueueError, for so long; any thread may use it.

    Redis restarts, is full or busy, is a replica for a moment, or was given another password: to wait loses
    nothing, to give up may lose what was paid for. What is wrong from the start, `check` says at once.
    `stopping`: when it is set, the process must end, and no call tries for longer than LAST_TRIES_S.
    """

    def is_over(state: tenacity.RetryCallState) -> bool:
        is_stopping = stopping is not None and stopping.is_set()
        return (state.seconds_since_start or 0.0) >= (LAST_TRIES_S if is_stopping else max_wait_s)

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(QueueError),
        wait=tenacity.wait_random_exponential(multiplier=0.05, max=MAX_BACKOFF_S),
        stop=is_over,
        reraise=True,
    )
