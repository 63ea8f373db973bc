"""The connection to Redis: one client a process, its settings, and what must be true of the server.

The only module that makes Redis clients. Errors are translated here, and the URL is shown without its
password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from shared.config.block import mask_url
from shared.errors import QueueError

#: Seconds a command may take. A healthy Redis answers in a millisecond; a Redis that saves, in a few.
SOCKET_TIMEOUT_S = 5.0

#: Seconds longer than it may block that a blocking read waits for its answer; redis-py's own time limit of
#: 5 s cut blocking reads short.
BLOCK_MARGIN_S = 5.0

_DATABASE = "end queue.url with /0"


def client(url: str, *, block_s: float | None = None) -> redis.Redis:
    """A client for `url`; with `block_s` one for reads that block so many seconds at most."""
    path = urlsplit(url).path.strip("/")
    if path and not path.isdigit() and not url.startswith("unix:"):
        # redis-py takes database 0 for whatever it cannot read.
        raise QueueError(f"queue.url {mask_url(url)}: {path!r} is no number of a database", hint=_DATABASE)
    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=SOCKET_TIMEOUT_S if block_s is None else block_s + BLOCK_MARGIN_S,
            socket_connect_timeout=SOCKET_TIMEOUT_S,
            # A restart of Redis closes idle connections: the next command finds out and tries once more.
            # Longer troubles are the business of those who know what may be lost.
            retry=Retry(ExponentialWithJitterBackoff(cap=0.2, base=0.02), retries=2),
            health_check_interval=30,
            client_name="memline",
        )
    except ValueError as error:
        raise QueueError(
            f"queue.url {mask_url(url)} is no Redis URL: {error}", hint="redis://127.0.0.1:6379/0"
        ) from None


def check(url: str) -> None:
    """See that the server can be trusted with messages. Raises QueueError with what to change.

    An eviction policy other than `noeviction` drops messages silently when memory is short. A server that is
    full takes no message at all.
    """
    with closing_client(url) as server, translated(url):
        server.ping()
        role = server.info("replication").get("role")
        if role != "master":
            raise QueueError(
                f"{mask_url(url)} is a read-only replica", hint="set queue.url to the primary server"
            )
        memory: dict[str, Any] = server.info("memory")
        policy = str(memory.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction" and int(memory.get("maxmemory", 0)):
            raise QueueError(
                f"{mask_url(url)} evicts keys when memory is short (maxmemory-policy {policy}),"
                " so messages would be lost silently",
                hint="redis-cli config set maxmemory-policy noeviction",
            )
        probe(server)


def probe(server: redis.Redis) -> None:
    """Write something small: that works on no replica, and on no server that is full."""
    server.set("memline:probe", 1, px=1)


@contextmanager
def closing_client(url: str) -> Iterator[redis.Redis]:
    """A client that is closed at the end."""
    server = client(url)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn redis-py's exceptions into QueueErrors that say what to do."""
    try:
        yield
    except redis.RedisError as error:
        raise translate(error, url) from error


def translate(error: redis.RedisError, url: str) -> QueueError:
    """The error of redis-py in our words, with what to do."""
    where = mask_url(url)
    text = str(error)
    if isinstance(error, redis.AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        return QueueError(
            f"Redis at {where} refuses the password",
            hint="put it into the URL: redis://:PASSWORD@host:6379/0",
        )
    if isinstance(error, redis.exceptions.OutOfMemoryError):
        return QueueError(
            f"Redis at {where} is out of memory; the backlog is safe in the index",
            hint="raise maxmemory: redis-cli config set maxmemory 256mb",
        )
    if isinstance(error, redis.exceptions.ReadOnlyError):
        return QueueError(f"{where} is a read-only replica", hint="set queue.url to the primary server")
    if "DB index" in text or "value is out of range" in text:
        return QueueError(f"Redis at {where} has no database of that number", hint=_DATABASE)
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return QueueError(
            f"Redis at {where} cannot be reached: {text}",
            hint="start it (redis-server), or work without it: unset queue.url",
        )
    return QueueError(f"Redis at {where}: {text}", hint="memline doctor")
