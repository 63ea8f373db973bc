"""Name the Redis of a fleet as the owner of leases, and tell whether it still keeps their requests.

The requests of a fleet lie in Redis, and outlive the store process that sent them. So their owner is what
lives and dies with the messages: a random key of ours beside them.

    <fleet>:run    string: which life of this Redis it is

Redis has a `run_id` of its own, which is another after a restart that has kept all messages, and the same
after a FLUSHALL that has lost them.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.scheduling import leases

if TYPE_CHECKING:
    from redis import Redis


def owner_at(client: Redis, url: str) -> str:
    """Return the owner of the leases whose requests are sent now: `redis RUN URL`, without a password."""
    name = redis_client.key(client, "run")
    client.set(name, uuid.uuid4().hex, nx=True)
    return f"{leases.REDIS}{_text(client.get(name))} {_public(url)}"


def is_owner_alive(owner: str, url: str = "") -> bool:
    """Tell whether the process or the Redis that holds a lease is still there.

    `url`: the queue of the caller, whose password may be needed. A Redis that refuses to say counts as there.
    """
    if not owner.startswith(leases.REDIS):
        return leases.is_owner_alive(owner)
    _, run, address = owner.split(" ", 2)
    # Its own address first: a home that was given another queue finds the requests of the former one gone.
    is_ours = bool(url) and _public(url) == address
    try:
        with redis_client.connected(url if is_ours else address) as client:
            return _text(client.get(redis_client.key(client, "run"))) == run
    except QueueError as error:
        return error.__cause__ is not None and not redis_client.is_away(error.__cause__)


def _public(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    # Not by `urlunsplit`, which makes `unix:/redis.sock` of `unix:///redis.sock`.
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else ""
