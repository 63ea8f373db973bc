"""List the messages that failed for good, put them back on their queues, or remove them, by dramatiq's keys:

<fleet>:<queue>.XQ         sorted set: id -> when it became a dead letter (ms)
<fleet>:<queue>.XQ.msgs    hash: id -> message
<fleet>:error:<id>         string: its error (ours, by `redis_broker.KeepErrors`)
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec

from memline.shared.config.installation import QueueAddress
from memline.shared.queue import redis_client
from memline.shared.queue.messages import ENVELOPES, Envelope, agent_of
from memline.shared.queue.routes import QUEUES

#: Messages read at a time: one with files that were read has their text, some hundred kB.
_PART = 100

#: What differs between two errors of a kind: quoted words, paths, hashes, long numbers.
_OWN_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|\S*/\S*|\b[0-9a-f]{8,}\b|\d{4,}")


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
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
    address: QueueAddress, *, agent: str = "", error: str | None = None, ids: Collection[str] | None = None
) -> list[DeadLetter]:
    """Read the dead letters, of each queue the oldest first.

    Only those of an agent, those whose error is like this one or contains this text, or those of these ids.
    """
    with closing(redis_client.client(address)) as client:
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
    groups: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        groups.setdefault(_kind(letter.error), []).append(letter)
    return {group[0].error: group for group in sorted(groups.values(), key=len, reverse=True)}


def _kind(error: str) -> str:
    """Return an error without what differs between two of a kind."""
    return _OWN_WORDS.sub("*", error)


def remove(address: QueueAddress, letters: Sequence[DeadLetter], *, puts_back: bool) -> int:
    """Put dead letters on their queues again, or drop them; returns how many were still there.

    What a dropped one is about is in the rows, and is sent, and paid for, again where it is still wanted.
    """
    with closing(redis_client.client(address)) as client:
        count = 0
        for letter in letters:
            base = client.key(letter.queue)
            if client.zscore(f"{base}.XQ", letter.id) is None:
                # Another operator was first. Where two put it back at the same moment, its actor runs twice.
                continue
            pipe = client.pipeline()
            pipe.zrem(f"{base}.XQ", letter.id)
            pipe.hdel(f"{base}.XQ.msgs", letter.id)
            pipe.delete(client.key(f"error:{letter.id}"))
            if puts_back:
                pipe.hset(f"{base}.msgs", letter.id, letter.content)
                pipe.rpush(base, letter.id)
            client.execute(pipe)
            count += 1
        return count


def _read_all(client: Any, queue: str) -> Iterator[DeadLetter]:
    base, first = client.key(queue), 0
    while dead := client.zrange(f"{base}.XQ", first, first + _PART - 1, withscores=True):
        first += _PART
        ids = [raw_id.decode() for raw_id, _ in dead]
        stored = client.hmget(f"{base}.XQ.msgs", ids)
        errors = client.mget([client.key(f"error:{each}") for each in ids])
        for message_id, (_, at_ms), raw, error in zip(ids, dead, stored, errors, strict=True):
            if raw is None:
                continue
            try:
                envelope = ENVELOPES.decode(raw)
            except msgspec.DecodeError:
                envelope = Envelope(queue, "", [], {}, {}, message_id, 0)
            # As it was before its first try: dramatiq counts the retries among the options.
            as_new = msgspec.structs.replace(envelope, options={"redis_message_id": message_id})
            yield DeadLetter(
                id=message_id,
                queue=queue,
                actor=envelope.actor_name,
                agent=agent_of(envelope.args),
                error=error.decode() if error else f"no worker knows the actor {envelope.actor_name!r}",
                age_s=max(0.0, time.time() - at_ms / 1000),
                content=msgspec.msgpack.encode(msgspec.structs.asdict(as_new)),
            )
