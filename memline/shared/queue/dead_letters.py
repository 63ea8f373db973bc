"""Read messages that failed, with their error; `message_list` requeues and drops them.

dramatiq keeps a dead letter for a week (`shared.queue.redis_broker` names the keys).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from memline.shared.queue import hosts, redis_client
from memline.shared.queue.messages import agent_of
from memline.shared.queue.redis_client import key
from memline.shared.queue.routes import QUEUES

if TYPE_CHECKING:
    from redis import Redis

#: Dead letters read from Redis at a time.
PAGE = 500


class DeadLetter(
    msgspec.Struct, frozen=True, kw_only=True, rename={"age_s": "ageSeconds", "host": "indexHost"}
):
    """One message that failed."""

    id: str
    queue: str
    #: The index host of the queue; empty where the fleet has one, and for a queue of all.
    host: str = ""
    actor: str = ""
    agent: str = ""
    error: str = ""
    #: Seconds since it became a dead letter.
    age_s: float

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


def letters(url: str, *, match: str = "*", first: int = 0, count: int | None = None) -> list[DeadLetter]:
    """Read the dead letters whose queue, index host, actor, agent, error or id matches the glob.

    Of each queue the oldest come first. `count` of them from the one at `first` on, None for all; what comes
    after those is not read.
    """
    with redis_client.connected(url) as client:
        last = None if count is None else first + count
        return list(islice(_matching(client, match), first, last))


def _matching(client: Redis, match: str) -> Iterator[DeadLetter]:
    for queue in hosts.queues(client, QUEUES):
        dead: Any = client.zrange(key(client, f"{queue}.XQ"), 0, -1, withscores=True)
        for first in range(0, len(dead), PAGE):
            for letter in read(client, queue, dead[first : first + PAGE]):
                words = (letter.queue, letter.host, letter.actor, letter.agent, letter.error, letter.id)
                if any(fnmatchcase(word, match) for word in words):
                    yield letter


def errors_since(client: Redis, queue: str, agent: str, since: float) -> list[str]:
    """Read the errors of an agent's dead letters of a queue since a moment (seconds since the epoch)."""
    dead: Any = client.zrangebyscore(key(client, f"{queue}.XQ"), since * 1000, "+inf", withscores=True)
    return [letter.error for letter in read(client, queue, dead[:PAGE]) if letter.agent == agent]


def drop_with(url: str, needles: Collection[bytes]) -> int:
    """Remove the dead letters whose message holds one of these bytes; returns how many."""
    dropped = 0
    with redis_client.connected(url) as client:
        for queue in hosts.queues(client, QUEUES):
            base = key(client, queue)
            stored: Any = client.hscan_iter(f"{base}.XQ.msgs", count=PAGE)
            for letter, content in stored:
                if any(each in content for each in needles):
                    client.zrem(f"{base}.XQ", letter)
                    client.hdel(f"{base}.XQ.msgs", letter)
                    dropped += 1
    return dropped


def read(client: Redis, queue: str, dead: list[tuple[bytes, float]]) -> list[DeadLetter]:
    """Read the dead letters of these ids, each with its moment (ms since the epoch)."""
    if not dead:
        return []
    stored: Any = client.hmget(key(client, f"{queue}.XQ.msgs"), [raw_id for raw_id, _ in dead])
    found = []
    for (raw_id, dead_ms), content in zip(dead, stored, strict=True):
        try:
            message = msgspec.msgpack.decode(content or b"")
            fields = {
                "actor": str(message.get("actor_name", "")),
                "agent": agent_of(message.get("args")),
                "error": str(message.get("options", {}).get("error", "")),
            }
        except (msgspec.DecodeError, AttributeError):
            fields = {"error": "the message cannot be decoded"}
        age_s = round(max(0.0, time.time() - dead_ms / 1000), 1)
        host = hosts.split(queue)[1]
        found.append(DeadLetter(id=raw_id.decode(), queue=queue, host=host, age_s=age_s, **fields))
    return found
