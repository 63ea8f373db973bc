"""Dead letters: messages that failed, kept with their error until a person requeues or drops them.

dramatiq keeps the message (for a week); its error is kept here beside it, because the stored message is the
one from before it failed. Errors of letters that are gone are dropped when the letters are listed.

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
from shared.queue.fleet import DEAD_ERRORS, NAMESPACE, FleetBroker
from shared.queue.messages import MessageRefused

#: Letters read from Redis at a time.
PAGE = 500


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


#: Actors whose failed messages are only logged: nobody waits for an old question, the timer sends the next
#: sweep in seconds, and the row of a batch says when it is looked at again. Kept, a full disk would make a
#: letter of every sweep of the night.
TRANSIENT = frozenset({"run_query", "sweep", "submit_batch", "poll_batch"})


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
        self._log.error(
            "message.failed",
            message_id=message.message_id,
            queue=message.queue_name,
            actor=message.actor_name,
            agent=_agent(message.args),
            error=_text(exception),
        )
        if message.actor_name not in TRANSIENT or isinstance(exception, MessageRefused):
            message.fail()

    def before_nack(self, broker: dramatiq.Broker, message: dramatiq.broker.MessageProxy) -> None:
        """The one place all failures come by, also that of a message whose actor this worker has not."""
        assert isinstance(broker, FleetBroker)
        if message._exception is not None:
            try:
                broker.keep_error(message.options["redis_message_id"], _text(message._exception))
            except redis.RedisError as error:
                self._log.warning("queue.error_not_kept", error=str(error))


def letters(url: str, queues: tuple[str, ...], *, match: str = "*") -> list[DeadLetter]:
    """Dead letters of `queues` whose queue, actor, agent or error matches the glob, oldest first."""
    found = []
    known: set[bytes] = set()
    with server.closing_client(url) as client, server.translated(url):
        for queue in queues:
            base = f"{NAMESPACE}:{queue}.XQ"
            died: Any = client.zrange(base, 0, -1, withscores=True)
            for first in range(0, len(died), PAGE):
                for letter in _read(client, queue, died[first : first + PAGE]):
                    words = (letter.queue, letter.actor, letter.agent, letter.error, letter.id)
                    if any(fnmatchcase(word, match) for word in words):
                        found.append(letter)
            known.update(raw_id for raw_id, _ in died)
        _forget_errors(client, queues, known)
    return found


def errors_since(client: redis.Redis, queue: str, agent: str, since: float) -> list[str]:
    """Errors of an agent's letters of a queue that died after a moment (seconds since the epoch)."""
    died: Any = client.zrangebyscore(f"{NAMESPACE}:{queue}.XQ", since * 1000, "+inf", withscores=True)
    return [letter.error for letter in _read(client, queue, died[:PAGE]) if letter.agent == agent]


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
    pipe.hdel(DEAD_ERRORS, letter_id)


def _forget_errors(client: redis.Redis, queues: tuple[str, ...], known: set[bytes]) -> None:
    """dramatiq drops letters after a week; their errors would stay for ever."""
    for raw_id, _ in client.hscan_iter(DEAD_ERRORS, count=PAGE):
        if raw_id in known:
            continue
        # It may be on its way: an error is kept a moment before its letter is moved.
        pipe = client.pipeline(transaction=False)
        for queue in queues:
            pipe.hexists(f"{NAMESPACE}:{queue}.msgs", raw_id)
            pipe.hexists(f"{NAMESPACE}:{queue}.XQ.msgs", raw_id)
        if not any(pipe.execute()):
            client.hdel(DEAD_ERRORS, raw_id)


def _read(client: redis.Redis, queue: str, died: list[tuple[bytes, float]]) -> list[DeadLetter]:
    """The letters of these ids, each with the moment it died (ms since the epoch)."""
    if not died:
        return []
    ids = [raw_id for raw_id, _ in died]
    stored: Any = client.hmget(f"{NAMESPACE}:{queue}.XQ.msgs", ids)
    errors: Any = client.hmget(DEAD_ERRORS, ids)
    return [
        _letter(queue, raw_id, died_ms, data, error)
        for (raw_id, died_ms), data, error in zip(died, stored, errors, strict=True)
    ]


def _letter(queue: str, raw_id: bytes, died_ms: float, data: bytes | None, error: bytes | None) -> DeadLetter:
    actor = agent = ""
    try:
        message = msgspec.msgpack.decode(data or b"\x80")
        actor = str(message.get("actor_name", ""))
        agent = _agent(message.get("args"))
    except (msgspec.DecodeError, AttributeError):
        error = error or b"the message cannot be decoded"
    return DeadLetter(
        id=raw_id.decode(),
        queue=queue,
        actor=actor,
        agent=agent,
        error=(error or b"").decode(errors="replace"),
        age_s=max(0.0, time.time() - died_ms / 1000),
    )


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _agent(arguments: Any) -> str:
    """The agent a message is about; empty when it does not say."""
    first = arguments[0] if isinstance(arguments, list | tuple) and arguments else None
    return str(first.get("agent", "")) if isinstance(first, dict) else ""
