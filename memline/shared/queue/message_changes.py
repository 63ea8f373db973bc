"""Put messages back on their queues (`memline queue requeue`), or remove them (`memline queue drop`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from memline.shared.queue import redis_client
from memline.shared.queue.message_list import (
    DELAYED,
    FAILURE_OPTIONS,
    KEYS,
    WAITING,
    StoredMessage,
    check_queue,
)
from memline.shared.queue.messages import EmbedTexts, StoreVectors
from memline.shared.queue.redis_client import key
from memline.shared.queue.routes import QUEUES
from memline.shared.words import counted

#: Messages that one call changes: Redis does nothing else meanwhile.
_CHANGED = 100

_EMBED_TEXTS = QUEUES["embed"].actors[EmbedTexts].name
_STORE_VECTORS = QUEUES["store"].actors[StoreVectors].name

#: Puts dead letters back on their queue with new content: id, content, id, content, …
_REQUEUE_DEAD = """
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

#: Puts delayed messages on their queue before their time.
_RETRY_NOW = """
local count = 0
for _, id in ipairs(ARGV) do
    if redis.call('ZREM', KEYS[1], id) == 1 and redis.call('HEXISTS', KEYS[2], id) == 1 then
        redis.call('RPUSH', KEYS[3], id)
        count = count + 1
    end
end
return count
"""

#: Removes messages of a state. One that a worker has taken meanwhile is no longer among the ids.
_DROP = """
local count, command = 0, ARGV[1]
for i = 2, #ARGV do
    local gone = command == 'LREM' and redis.call('LREM', KEYS[1], 1, ARGV[i])
        or redis.call('ZREM', KEYS[1], ARGV[i])
    if gone == 1 then redis.call('HDEL', KEYS[2], ARGV[i]); count = count + 1 end
end
return count
"""


def requeue(url: str, state: str, chosen: Sequence[tuple[str, str]]) -> int:
    """Put dead or delayed messages (queue, id) on their queues; returns how many were still there.

    Dead requests to embed are removed: the store worker has freed their texts, which go out by themselves.
    Sent once more they would be paid for twice.
    """
    done = 0
    with redis_client.connected(url) as client:
        dead, delayed = client.register_script(_REQUEUE_DEAD), client.register_script(_RETRY_NOW)
        for queue, ids in _by_queue(chosen):
            base = key(client, queue)
            keys = [f"{base}{ending}" for ending in KEYS[state]]
            if state == DELAYED:
                done += int(delayed(keys=[*keys, base], args=ids))
                continue
            stored: Any = client.hmget(keys[1], ids)
            found = [(each, raw) for each, raw in zip(ids, stored, strict=True) if raw is not None]
            requests = [each for each, raw in found if _actor_of(raw) == _EMBED_TEXTS]
            if requests:
                done += drop(url, state, [(queue, each) for each in requests])
            pairs = [(each, _as_new(raw)) for each, raw in found if each not in requests]
            args = [part for pair in pairs for part in pair]
            done += int(dead(keys=[*keys, base, f"{base}.msgs"], args=args)) if args else 0
    return done


def drop(url: str, state: str, chosen: Sequence[tuple[str, str]]) -> int:
    """Remove messages (queue, id) for good; returns how many were still there.

    What they are about is in the rows, and is sent again where it is still wanted. Only the vectors of an
    answer are nowhere else: `paid_answers` counts such messages.
    """
    done = 0
    with redis_client.connected(url) as client:
        script = client.register_script(_DROP)
        for queue, ids in _by_queue(chosen):
            keys = [f"{key(client, queue)}{ending}" for ending in KEYS[state]]
            done += int(script(keys=keys, args=["LREM" if state == WAITING else "ZREM", *ids]))
    return done


def paid_answers(messages: Iterable[StoredMessage]) -> int:
    """Count those of these messages that hold vectors which are paid for, and are not stored yet."""
    return sum(each.actor == _STORE_VECTORS for each in messages)


def loss_of(paid: int) -> str:
    """Say what is lost for good with so many paid answers; empty without any."""
    if not paid:
        return ""
    answers = counted(paid, "paid answer")
    return f"Lost with them: {answers}. Texts that have no vector yet are sent, and paid for, again."


def _by_queue(chosen: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Gather messages (queue, id) by queue, at most `_CHANGED` at a time."""
    by_queue: dict[str, list[str]] = {}
    for queue, message_id in chosen:
        check_queue(queue)
        by_queue.setdefault(queue, []).append(message_id)
    for queue, ids in by_queue.items():
        for first in range(0, len(ids), _CHANGED):
            yield queue, ids[first : first + _CHANGED]


def _actor_of(content: bytes) -> str:
    try:
        message = msgspec.msgpack.decode(content)
        return _actor_of(message["refused"]) if "refused" in message else str(message["actor_name"])
    except (msgspec.DecodeError, LookupError, TypeError):
        return ""


def _as_new(content: bytes) -> bytes:
    """Forget the errors of a message and how often it was tried."""
    try:
        message = msgspec.msgpack.decode(content)
        if "refused" in message:
            return bytes(message["refused"])
        for name in FAILURE_OPTIONS:
            message["options"].pop(name, None)
    except (msgspec.DecodeError, AttributeError, LookupError, TypeError):
        return content
    return msgspec.msgpack.encode(message)
