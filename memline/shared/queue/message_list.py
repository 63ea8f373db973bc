"""List the messages of the queues, group dead letters by their error, and requeue or drop them.

A message is `waiting` (no worker has taken it), `delayed` (it failed and waits for its retry) or `dead`: a
dead letter, which dramatiq keeps for a week. `shared.queue.redis_broker` names the keys. What changes a
message is one script: of a worker that takes it and an operator who drops it one is first, and the other
finds nothing.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from memline.shared.errors import BadRequest
from memline.shared.queue import redis_client
from memline.shared.queue.redis_client import key
from memline.shared.queue.routes import QUEUES
from memline.shared.tables import as_dict, as_list, as_number
from memline.shared.values import value

if TYPE_CHECKING:
    from redis import Redis

WAITING, DELAYED, DEAD = "waiting", "delayed", "dead"
STATES = (DEAD, DELAYED, WAITING)
#: Taken by a worker: shown by its id, and neither listed nor changed.
IN_FLIGHT = "in flight"

#: Messages read from Redis at a time: one with files that were read has their text, some hundred kB.
_READ = 100

#: Messages that are examined for one page; behind them the page ends, and the next one goes on.
MAX_EXAMINED = 5_000

#: Messages of a page, or of a group, that are listed.
PAGE = 50

#: Characters of an error or path that are shown.
_SHOWN_CHARS = 300

#: Options of a message that say how it failed (`shared.queue.middleware`).
FAILURE_OPTIONS = ("error", "first_error", "first_failed_at", "trace", "retries")

#: Where the messages of a state are: the ending of the key with their ids, and of that with their content.
KEYS = {
    WAITING: ("", ".msgs"),
    DELAYED: (".delayed", ".msgs"),
    DEAD: (".XQ", ".XQ.msgs"),
    IN_FLIGHT: ("", ".msgs"),
}

#: What differs between two errors of a group: quoted words, paths, hashes, long numbers.
_OWN_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|\S*/\S*|\b[0-9a-f]{8,}\b|\d{4,}")

_UNREADABLE = "the message cannot be decoded"


def group_of(error: str) -> str:
    """Return the name of the group of an error: those that differ in names and numbers alone have one."""
    return hashlib.sha256(_OWN_WORDS.sub("*", error).encode("utf-8", "replace")).hexdigest()[:8]


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a queue, as far as it says what it is."""

    id: str
    queue: str
    state: str
    actor: str = ""
    agent: str = ""
    #: Of files to look at, of files that were read, or the name of a transcript.
    paths: tuple[str, ...] = ()
    #: The last error, and the first with its moment (s since the epoch); the traceback's end of the last.
    error: str = ""
    first_error: str = ""
    first_failed_at: float | None = None
    trace: str = ""
    retries: int = 0
    bytes: int = 0
    #: Since it was sent; None when it does not say.
    age_s: float | None = None
    #: Since it became a dead letter, or until its retry.
    dead_s: float | None = None
    retry_in_s: float | None = None

    @property
    def group(self) -> str:
        """The name of the group of its error: of dead letters that failed alike."""
        return group_of(self.error)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "queue": self.queue,
            "state": self.state,
            "actor": self.actor,
            "agent": self.agent,
            "path": self.paths[0][:_SHOWN_CHARS] if self.paths else "",
            "paths": len(self.paths),
            "error": self.error[:_SHOWN_CHARS],
            "group": self.group if self.state == DEAD else None,
            "retries": self.retries,
            "bytes": self.bytes,
            "ageSeconds": self.age_s,
            "deadSeconds": self.dead_s,
            "retryInSeconds": self.retry_in_s,
        }


@value
class Filter:
    """Which messages are meant; an empty field means all."""

    state: str = DEAD
    #: Name of a queue.
    queue: str = ""
    agent: str = ""
    #: Of the error (`StoredMessage.group`).
    group: str = ""
    ids: tuple[str, ...] = ()
    #: A glob over queue, actor, agent, error and id.
    match: str = ""

    def queues(self) -> list[str]:
        """List the queues that are meant. Raises BadRequest for one that cannot exist."""
        if not self.queue:
            return [*QUEUES]
        check_queue(self.queue)
        return [self.queue]

    def means(self, message: StoredMessage) -> bool:
        words = (message.queue, message.actor, message.agent, message.error, message.id)
        return (
            (not self.agent or message.agent == self.agent)
            and (not self.ids or message.id in self.ids)
            and (not self.group or message.group == self.group)
            and (not self.match or any(fnmatchcase(word, self.match) for word in words))
        )


@value
class Page:
    """Some messages of a list, in order."""

    messages: tuple[StoredMessage, ...]
    #: Where the next page begins; empty behind the last.
    cursor: str
    #: Queue -> how many messages of the state it has.
    counts: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "counts": {queue: count for queue, count in self.counts.items() if count},
            "messages": [each.to_json() for each in self.messages],
            "after": self.cursor or None,
        }


@value
class Group:
    """Dead letters that failed alike."""

    id: str
    #: The error of the first of them; others may name another file.
    error: str
    messages: tuple[StoredMessage, ...]

    def of(self, field: str) -> list[str]:
        """List what the messages of the group say in a field, each once."""
        return sorted({getattr(each, field) for each in self.messages} - {""})

    @property
    def ages_s(self) -> tuple[float, float]:
        """Since the newest and the oldest of them failed."""
        ages = [each.dead_s or 0.0 for each in self.messages]
        return min(ages), max(ages)


def page(url: str, where: Filter, *, cursor: str = "", limit: int = PAGE) -> Page:
    """List messages: of each queue the oldest first, or in the order of their retry; and count them.

    At most `MAX_EXAMINED` are examined, so a page may hold fewer than `limit`, or none, and not be the last.
    Raises BadRequest for a cursor that is not one of a page before.
    """
    found: list[StoredMessage] = []
    with redis_client.connected(url) as client:
        queues = where.queues()
        name, _, rank = cursor.partition(".") if cursor else (queues[0], "", "0")
        if name not in queues or not rank.isdecimal() or len(rank) > 9:
            raise BadRequest(f"{cursor[:80]!r} is not a place in this list", hint="begin with the first page")
        first, examined, cursor = queues.index(name), 0, ""
        ranks = dict.fromkeys(queues, 0) | {name: int(rank)}
        stored = (
            (f"{queue}.{behind}", message)
            for queue in queues[first:]
            for behind, message in _stored(client, queue, where.state, ranks[queue])
        )
        for following, message in stored:
            if len(found) == limit or examined == MAX_EXAMINED:
                break
            examined, cursor = examined + 1, following
            found += [message] if message and where.means(message) else []
        else:
            cursor = ""
        pipe = client.pipeline(transaction=False)
        for queue in queues:
            name = f"{key(client, queue)}{KEYS[where.state][0]}"
            pipe.llen(name) if where.state == WAITING else pipe.zcard(name)
        counts = dict(zip(queues, pipe.execute(), strict=True))
    return Page(messages=tuple(found), cursor=cursor, counts=counts)


def listed(url: str, where: Filter, *, limit: int | None = None) -> list[StoredMessage]:
    """Read all messages that are meant, or the first `limit`, in the order of `page`."""
    with redis_client.connected(url) as client:
        stored = (
            message
            for queue in where.queues()
            for _, message in _stored(client, queue, where.state)
            if message and where.means(message)
        )
        return list(islice(stored, limit))


def groups(url: str, where: Filter) -> list[Group]:
    """Group the dead letters that are meant by their error, the largest group first."""
    found: dict[str, list[StoredMessage]] = {}
    for message in listed(url, where):
        found.setdefault(message.group, []).append(message)
    made = [Group(id=name, error=each[0].error, messages=tuple(each)) for name, each in found.items()]
    return sorted(made, key=lambda group: (-len(group.messages), group.id))


def details(url: str, state: str, queue: str, message_id: str) -> StoredMessage | None:
    """Read one message as it is now; None when it is not in that state any more."""
    check_queue(queue)
    ids, contents = KEYS[state]
    with redis_client.connected(url) as client:
        base = key(client, queue)
        if state == IN_FLIGHT:
            at: Any = 0.0
        elif state == WAITING:
            at = 0.0 if client.lpos(base, message_id) is not None else None
        else:
            at = client.zscore(f"{base}{ids}", message_id)
        raw: Any = client.hget(f"{base}{contents}", message_id)
    return None if at is None or raw is None else _read(queue, state, message_id, at, raw)


def errors_since(client: Redis, queue: str, agent: str, since: float) -> list[str]:
    """Read the errors of an agent's dead letters of a queue since a moment (seconds since the epoch)."""
    of_queue = f"{key(client, queue)}.XQ"
    dead: Any = client.zrangebyscore(of_queue, since * 1000, "+inf", start=0, num=_READ, withscores=True)
    return [each.error for each in _contents(client, queue, DEAD, dead) if each and each.agent == agent]


def dead_letters_of(client: Redis, queue: str, tokens: Collection[str]) -> Iterator[StoredMessage]:
    """Read the dead letters of a queue that are named after one of these leases."""
    dead: Any = client.zrange(f"{key(client, queue)}.XQ", 0, -1, withscores=True)
    ours = [entry for entry in dead if lease_of(entry[0]) in tokens]
    return filter(None, _contents(client, queue, DEAD, ours))


def lease_of(message_id: bytes) -> str:
    """Give the lease that a request or an answer to it is named after (`shared.queue.broker.send`)."""
    return message_id.decode("utf-8", "replace").partition(".")[0]


def _stored(
    client: Redis, queue: str, state: str, first: int = 0
) -> Iterator[tuple[int, StoredMessage | None]]:
    """Read the messages of a queue from a rank on, each with the next rank; None: it was taken meanwhile."""
    name = f"{key(client, queue)}{KEYS[state][0]}"
    while True:
        found: Any
        if state == WAITING:
            found = [(raw_id, 0.0) for raw_id in client.lrange(name, first, first + _READ - 1)]
        else:
            found = client.zrange(name, first, first + _READ - 1, withscores=True)
        yield from enumerate(_contents(client, queue, state, found), first + 1)
        if len(found) < _READ:
            return
        first += _READ


def _contents(
    client: Redis, queue: str, state: str, found: Sequence[tuple[bytes, float]]
) -> Iterator[StoredMessage | None]:
    """Read the messages of these ids, each with the moment of its state (ms since the epoch)."""
    ids = [raw_id for raw_id, _ in found]
    stored: Any = client.hmget(f"{key(client, queue)}{KEYS[state][1]}", ids) if ids else ()
    for (raw_id, at_ms), raw in zip(found, stored, strict=True):
        yield None if raw is None else _read(queue, state, raw_id.decode("utf-8", "replace"), at_ms, raw)


def _read(queue: str, state: str, message_id: str, at_ms: float, raw: bytes) -> StoredMessage:
    """Make what is known of a message; what could be decoded may be anything."""
    now = time.time()
    try:
        message = msgspec.msgpack.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = {}
    options = as_dict(message.get("options"))
    about = as_dict(next(iter(as_list(message.get("args"))), None))
    files = [each.get("path", "") for each in as_list(about.get("files")) if isinstance(each, dict)]
    paths = [str(each) for each in (*as_list(about.get("paths")), *files)]
    paths += [about["session"]] if isinstance(about.get("session"), str) else []
    error = str(options.get("error", "")) or ("" if message.get("actor_name") else _UNREADABLE)
    sent_s = as_number(message.get("message_timestamp")) / 1000
    return StoredMessage(
        id=message_id,
        queue=queue,
        state=state,
        actor=str(message.get("actor_name", "")),
        agent=str(about.get("agent", "")),
        paths=tuple(paths),
        error=error,
        first_error=str(options.get("first_error", "")) or error,
        first_failed_at=as_number(options.get("first_failed_at")) / 1000 or None,
        trace=str(options.get("trace", "")),
        retries=int(as_number(options.get("retries"))),
        bytes=len(raw),
        age_s=round(max(0.0, now - sent_s), 1) if sent_s else None,
        dead_s=round(max(0.0, now - at_ms / 1000), 1) if state == DEAD else None,
        retry_in_s=round(max(0.0, at_ms / 1000 - now), 1) if state == DELAYED else None,
    )


def check_queue(queue: str) -> None:
    if queue not in QUEUES:
        raise BadRequest(f"there is no queue {queue[:80]!r}", hint=f"name one of these: {', '.join(QUEUES)}")
