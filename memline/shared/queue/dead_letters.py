"""List the messages that failed for good, by their last error; put them back on their queues, or remove them.

`shared.queue.redis_broker` names the keys. Each change is one script: of two operators one is first, and the
other finds nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from memline.shared.queue import redis_client
from memline.shared.queue.messages import EmbedTexts, StoreVectors
from memline.shared.queue.redis_client import key
from memline.shared.queue.routes import QUEUES
from memline.shared.tables import as_dict, as_list
from memline.shared.values import value

if TYPE_CHECKING:
    from redis import Redis

#: Messages read or changed at a time: one with files that were read has their text, some hundred kB.
_PART = 100

#: What differs between two errors of a kind: quoted words, paths, hashes, long numbers.
_OWN_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|\S*/\S*|\b[0-9a-f]{8,}\b|\d{4,}")

_EMBED_TEXTS = QUEUES["embed"].actors[EmbedTexts].name
_STORE_VECTORS = QUEUES["store"].actors[StoreVectors].name

#: Puts dead letters back on their queue with new content: id, content, id, content, …
_REQUEUE = """
local count = 0
for i = 1, #ARGV, 2 do
    if redis.call('ZREM', KEYS[1], ARGV[i]) == 1 then
        redis.call('HDEL', KEYS[2], ARGV[i])
        local is_new = redis.call('HSETNX', KEYS[4], ARGV[i], ARGV[i + 1]) == 1
        if is_new then redis.call('RPUSH', KEYS[3], ARGV[i]) end
        count = count + 1
    end
end
return count
"""

_DROP = """
local count = 0
for _, id in ipairs(ARGV) do
    if redis.call('ZREM', KEYS[1], id) == 1 then redis.call('HDEL', KEYS[2], id); count = count + 1 end
end
return count
"""


@value
class DeadLetter:
    """A message that no retry helped."""

    id: str
    queue: str
    actor: str
    agent: str
    error: str
    #: Since it became a dead letter.
    age_s: float
    #: The message as it was sent.
    content: bytes

    @property
    def is_paid_answer(self) -> bool:
        """Whether it has vectors that are paid for, and are nowhere else."""
        return self.actor == _STORE_VECTORS

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "queue": self.queue,
            "actor": self.actor,
            "agent": self.agent,
            "error": self.error,
            "ageSeconds": round(self.age_s, 1),
        }


def listed(
    url: str, *, agent: str = "", error: str | None = None, ids: Collection[str] | None = None
) -> list[DeadLetter]:
    """Read the dead letters, of each queue the oldest first.

    Only those of an agent, those whose error is like this one or contains this text, or those of these ids.
    """
    with redis_client.connected(url) as client:
        return [
            letter
            for queue in QUEUES
            for letter in _read_all(client, queue)
            if (not agent or letter.agent == agent)
            and (not error or error in letter.error or _kind(letter.error) == _kind(error))
            and (not ids or letter.id in ids)
        ]


def by_error(letters: Sequence[DeadLetter]) -> dict[str, list[DeadLetter]]:
    """Group dead letters by what their errors have in common, the largest first, by its first error."""
    found: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        found.setdefault(_kind(letter.error), []).append(letter)
    return {group[0].error: group for group in sorted(found.values(), key=len, reverse=True)}


def _kind(error: str) -> str:
    """Return an error without what differs between two of a kind."""
    return _OWN_WORDS.sub("*", error)


def requeue(url: str, letters: Sequence[DeadLetter]) -> int:
    """Put dead letters on their queues again; returns how many were still there.

    Requests to embed are removed: the store worker has freed their texts, which go out by themselves. Sent
    once more they would be paid for twice.
    """
    again = [each for each in letters if each.actor != _EMBED_TEXTS]

    def put_back(client: Redis, queue: str, part: Sequence[DeadLetter]) -> int:
        base = key(client, queue)
        args = [text for each in part for text in (each.id, each.content)]
        keys = [f"{base}.XQ", f"{base}.XQ.msgs", base, f"{base}.msgs"]
        return int(client.register_script(_REQUEUE)(keys=keys, args=args))

    return _change(url, again, put_back) + drop(url, [each for each in letters if each not in again])


def drop(url: str, letters: Sequence[DeadLetter]) -> int:
    """Remove dead letters for good; returns how many were still there.

    What they are about is in the rows, and is sent again where it is still wanted; see `is_paid_answer`.
    """

    def remove(client: Redis, queue: str, part: Sequence[DeadLetter]) -> int:
        base = key(client, queue)
        args = [each.id for each in part]
        return int(client.register_script(_DROP)(keys=[f"{base}.XQ", f"{base}.XQ.msgs"], args=args))

    return _change(url, letters, remove)


def _change(
    url: str, letters: Sequence[DeadLetter], change: Callable[[Redis, str, Sequence[DeadLetter]], int]
) -> int:
    done = 0
    if letters:
        with redis_client.connected(url) as client:
            for queue in QUEUES:
                ours = [each for each in letters if each.queue == queue]
                for first in range(0, len(ours), _PART):
                    done += change(client, queue, ours[first : first + _PART])
    return done


def errors_since(client: Redis, queue: str, agent: str, since: float) -> list[str]:
    """Read the errors of an agent's dead letters of a queue since a moment (seconds since the epoch)."""
    dead: Any = client.zrangebyscore(
        f"{key(client, queue)}.XQ", since * 1000, "+inf", start=0, num=_PART, withscores=True
    )
    return [each.error for each in _read(client, queue, dead) if each.agent == agent]


def of_leases(client: Redis, queue: str, tokens: Collection[str]) -> Iterator[DeadLetter]:
    """Read the dead letters of a queue that are named after one of these leases."""
    dead: Any = client.zrange(f"{key(client, queue)}.XQ", 0, -1, withscores=True)
    return _read(client, queue, [entry for entry in dead if lease_of(entry[0]) in tokens])


def lease_of(message_id: bytes) -> str:
    """Give the lease that a request or an answer to it is named after (`shared.queue.broker.send`)."""
    return message_id.decode("utf-8", "replace").partition(".")[0]


def _read_all(client: Redis, queue: str) -> Iterator[DeadLetter]:
    first = 0
    while found := client.zrange(f"{key(client, queue)}.XQ", first, first + _PART - 1, withscores=True):
        yield from _read(client, queue, found)  # type: ignore[arg-type]
        first += _PART


def _read(client: Redis, queue: str, found: Sequence[tuple[bytes, float]]) -> Iterator[DeadLetter]:
    """Read the dead letters of these ids, each with the moment it became one (ms since the epoch)."""
    ids, now = [raw_id for raw_id, _ in found], time.time()
    stored: Any = client.hmget(f"{key(client, queue)}.XQ.msgs", ids) if ids else ()
    for (raw_id, at_ms), raw in zip(found, stored, strict=True):
        if raw is None:
            continue
        message, content = _decoded(raw)
        options = as_dict(message.get("options"))
        about = as_dict(next(iter(as_list(message.get("args"))), None))
        yield DeadLetter(
            id=raw_id.decode("utf-8", "replace"),
            queue=queue,
            actor=str(message.get("actor_name", "")),
            agent=str(about.get("agent", "")),
            error=str(options.get("error", "")) or "the message cannot be decoded",
            age_s=max(0.0, now - at_ms / 1000),
            content=content,
        )


def _decoded(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """Decode a dead letter, which may be anything; also give the message without what its failures added."""
    try:
        message = msgspec.msgpack.decode(raw, type=dict[str, Any])
        if "refused" in message:
            return message, bytes(message["refused"])
        options = message["options"].items()
        options = {name: each for name, each in options if name not in ("error", "retries")}
        return message, msgspec.msgpack.encode({**message, "options": options})
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, LookupError, TypeError):
        return {}, raw
