"""Dead letters: messages that failed, kept with their error until a person requeues or drops them.

dramatiq keeps the message (for a week); its error is kept here beside it, because the stored message is the
one from before it failed.

    memline:<queue>.XQ          sorted set: id -> when it died (ms)         (dramatiq's)
    memline:<queue>.XQ.msgs     hash: id -> message                         (dramatiq's)
    memline:dead.errors         hash: id -> error and where it happened     (ours)
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import dramatiq
import msgspec
import redis
from dramatiq.middleware import Middleware

from shared.logs import Log
from shared.queue import server
from shared.queue.fleet import NAMESPACE, FleetBroker

ERRORS = f"{NAMESPACE}:dead.errors"

#: Errors kept at most; those of letters that are gone are dropped when the listing meets them.
MAX_ERRORS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One message that failed."""

    id: str
    queue: str
    actor: str
    agent: str
    error: str
    #: Seconds since it died.
    age_s: float

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "queue": self.queue,
            "actor": self.actor,
            "agent": self.agent,
            "error": self.error,
            "ageSeconds": round(self.age_s, 1),
        }


class DeadLetters(Middleware):
    """Sends a message whose actor raised to the dead letters, with its error. There are no blind retries:
    what the message was about is in rows, and goes out again from there."""

    def __init__(self) -> None:
        self._log = Log("queue")

    def after_process_message(
        self,
        broker: dramatiq.Broker,
        message: dramatiq.broker.MessageProxy,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        if exception is None:
            return
        message.fail()
        text = f"{type(exception).__name__}: {exception}"
        self._log.error(
            "message.failed",
            message_id=message.message_id,
            queue=message.queue_name,
            actor=message.actor_name,
            error=text,
        )
        if isinstance(broker, FleetBroker):
            try:
                broker.client.hset(ERRORS, message.options["redis_message_id"], text[:2_000])
            except redis.RedisError as error:
                self._log.warning("queue.error_not_kept", error=str(error))


def letters(url: str, queues: tuple[str, ...], *, match: str = "*") -> list[DeadLetter]:
    """Dead letters of `queues` whose queue, actor, agent or error matches the glob, oldest first."""
    found = []
    with server.closing_client(url) as client, server.translated(url):
        for queue in queues:
            base = f"{NAMESPACE}:{queue}.XQ"
            died: Any = client.zrange(base, 0, -1, withscores=True)
            for raw_id, died_ms in died:
                letter = _letter(client, queue, raw_id, died_ms)
                words = (letter.queue, letter.actor, letter.agent, letter.error, letter.id)
                if any(fnmatchcase(word, match) for word in words):
                    found.append(letter)
    return found


def requeue(url: str, chosen: list[DeadLetter]) -> int:
    """Put dead letters back on their queues; returns how many were still there."""
    moved = 0
    with server.closing_client(url) as client, server.translated(url):
        for letter in chosen:
            base = f"{NAMESPACE}:{letter.queue}"
            data = client.hget(f"{base}.XQ.msgs", letter.id)
            if data is None:
                continue
            pipe = client.pipeline(transaction=True)
            pipe.hset(f"{base}.msgs", letter.id, data)
            pipe.rpush(base, letter.id)
            _forget(pipe, base, letter.id)
            pipe.execute()
            moved += 1
    return moved


def drop(url: str, chosen: list[DeadLetter]) -> int:
    """Remove dead letters for good; returns how many were still there."""
    dropped = 0
    with server.closing_client(url) as client, server.translated(url):
        for letter in chosen:
            pipe = client.pipeline(transaction=True)
            _forget(pipe, f"{NAMESPACE}:{letter.queue}", letter.id)
            dropped += int(bool(pipe.execute()[0]))
    return dropped


def _forget(pipe: redis.client.Pipeline, base: str, letter_id: str) -> None:
    pipe.zrem(f"{base}.XQ", letter_id)
    pipe.hdel(f"{base}.XQ.msgs", letter_id)
    pipe.hdel(ERRORS, letter_id)


def _letter(client: redis.Redis, queue: str, raw_id: bytes, died_ms: float) -> DeadLetter:
    data: Any = client.hget(f"{NAMESPACE}:{queue}.XQ.msgs", raw_id)
    error: Any = client.hget(ERRORS, raw_id)
    actor = agent = ""
    try:
        message = msgspec.msgpack.decode(data or b"\x80")
        actor = str(message.get("actor_name", ""))
        arguments = message.get("args") or [{}]
        agent = str(arguments[0].get("agent", ""))
    except (msgspec.DecodeError, AttributeError):
        error = error or b"the message cannot be decoded"
    return DeadLetter(
        id=raw_id.decode(),
        queue=queue,
        actor=actor,
        agent=agent,
        error=(error or b"").decode(),
        age_s=max(0.0, time.time() - died_ms / 1000),
    )
