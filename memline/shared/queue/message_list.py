"""List the messages of the queues a page at a time, and requeue or drop them.

A message is `waiting` (no worker has taken it), `delayed` (it failed and waits for its retry) or `dead`.
Redis itself reads and filters them, so that neither 20,000 messages nor the notes in one of them cross the
wire for a page of fifty. `shared.queue.redis_broker` names the keys. What changes a message is one script: of
a worker that takes it and an operator who drops it one is first, and the other finds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from memline.shared.errors import BadRequest
from memline.shared.queue import hosts, redis_client
from memline.shared.queue.redis_client import key
from memline.shared.queue.routes import QUEUES
from memline.shared.values import value

if TYPE_CHECKING:
    from redis import Redis

WAITING, DELAYED, DEAD = "waiting", "delayed", "dead"
STATES = (DEAD, DELAYED, WAITING)

#: Messages that one call of the script examines, and their bytes: Redis does nothing else meanwhile.
_EXAMINED = 500
_EXAMINED_BYTES = 4 * 1024 * 1024

#: Messages that are examined for one page; behind them the page ends, and the next one goes on.
MAX_EXAMINED = 5_000

#: Messages that one call changes.
_CHANGED = 100

#: Characters of an error, and of a path, in a list.
_SHOWN_CHARS = 300

#: Options of a message that say how it failed (`shared.queue.redis_broker`).
FAILURE_OPTIONS = ("error", "first_error", "first_failed_at", "trace", "retries")

#: Where the messages of a state are: the ending of the key with their ids, and of that with their content.
_KEYS = {WAITING: ("", ".msgs"), DELAYED: (".delayed", ".msgs"), DEAD: (".XQ", ".XQ.msgs")}

#: Reads the messages from a rank on, and gives those that match. Answers with the next rank, -1 behind the
#: last, and the `_FIELDS` of each message, or only its id.
_SELECT = """
local state, first, room = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local examined, bytes, shown = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local actor, agent, path, words = ARGV[7], ARGV[8], ARGV[9], ARGV[10]

local function has(text, part)
    return part == '' or (type(text) == 'string' and string.find(text, part, 1, true) ~= nil)
end
local function text_of(any) return type(any) == 'string' and any or '' end

-- The paths of a message: of files to look at, of files that were read, or the name of a transcript.
local function paths_of(about)
    local paths = {}
    if type(about.paths) == 'table' then paths = about.paths end
    if type(about.files) == 'table' then
        for i, file in ipairs(about.files) do paths[i] = type(file) == 'table' and file.path or '' end
    end
    if type(about.session) == 'string' then paths = {about.session} end
    return paths
end

local found, left = {}, 0
if state == 'waiting' then
    for _, id in ipairs(redis.call('LRANGE', KEYS[1], first, first + examined - 1)) do
        table.insert(found, id)
        table.insert(found, '0')
    end
else
    found = redis.call('ZRANGE', KEYS[1], first, first + examined - 1, 'WITHSCORES')
end
local answer, rank, read = {}, first, 0
for i = 1, #found, 2 do
    if #answer >= room or read > bytes then break end
    rank = rank + 1
    local raw = redis.call('HGET', KEYS[2], found[i])
    local is_known, message = false, nil
    if raw then
        read = read + #raw
        is_known, message = pcall(cmsgpack.unpack, raw)
    end
    if not is_known or type(message) ~= 'table' then message = {} end
    local options = type(message.options) == 'table' and message.options or {}
    local about = type(message.args) == 'table' and message.args[1] or {}
    if type(about) ~= 'table' then about = {} end
    local error = text_of(options.error)
    if raw and (not is_known or message.actor_name == nil) and error == '' then
        error = 'the message cannot be decoded'
    end
    local paths, match = paths_of(about), path == ''
    local shown_path = text_of(paths[1])
    if not match then
        for _, each in ipairs(paths) do
            if has(each, path) then match, shown_path = true, each break end
        end
    end
    match = match and (actor == '' or message.actor_name == actor) and (agent == '' or about.agent == agent)
    match = match and (has(error, words) or has(options.first_error, words))
    if raw and match and ARGV[11] == 'ids' then
        table.insert(answer, found[i])
    elseif raw and match then
        table.insert(answer, {
            found[i], found[i + 1], text_of(message.actor_name), text_of(about.agent),
            string.sub(shown_path, 1, shown), string.sub(error, 1, shown), tostring(#paths), tostring(#raw),
            tostring(tonumber(options.retries) or 0),
            string.format('%.0f', tonumber(message.message_timestamp) or 0),
        })
    end
end
local is_last = #found < 2 * examined and rank == first + #found / 2
return {is_last and -1 or rank, answer}
"""

_FIELDS = ("id", "at_ms", "actor", "agent", "path", "error", "paths", "bytes", "retries", "sent_ms")

#: Puts dead letters back on their queue with new content: id, content, id, content, …
_REQUEUE_DEAD = """
local count = 0
for i = 1, #ARGV, 2 do
    if redis.call('ZREM', KEYS[1], ARGV[i]) == 1 then
        redis.call('HDEL', KEYS[2], ARGV[i])
        if redis.call('HSETNX', KEYS[4], ARGV[i], ARGV[i + 1]) == 1 then
            redis.call('RPUSH', KEYS[3], ARGV[i])
        end
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
    local gone
    if command == 'LREM' then
        gone = redis.call('LREM', KEYS[1], 1, ARGV[i])
    else
        gone = redis.call('ZREM', KEYS[1], ARGV[i])
    end
    if gone == 1 then
        redis.call('HDEL', KEYS[2], ARGV[i])
        count = count + 1
    end
end
return count
"""


@value
class Filter:
    """Which messages are meant; an empty field means all."""

    state: str = DEAD
    #: A role, for its queues on all index hosts, or the name of one queue.
    queue: str = ""
    actor: str = ""
    agent: str = ""
    #: Part of a path of a file that the message is about.
    path: str = ""
    #: Part of its last error, or of its first.
    error: str = ""

    def queues(self, client: Redis) -> list[str]:
        """List the queues that are meant, on all index hosts. Raises BadRequest for one that cannot exist."""
        if not self.queue:
            return hosts.queues(client, QUEUES)
        _check(self.queue)
        return hosts.queues(client, [self.queue]) if self.queue in QUEUES else [self.queue]


class ListedMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One message of a list."""

    id: str
    queue: str
    #: The index host of the queue; empty where the fleet has one, and for a queue of all.
    index_host: str
    state: str
    actor: str
    agent: str
    #: The path that matches, else the first; how many it is about.
    path: str
    paths: int
    #: The last error, cut.
    error: str
    retries: int
    bytes: int
    #: Since it was sent; None when it does not say.
    age_seconds: float | None
    #: Since it became a dead letter, or until its retry.
    dead_seconds: float | None
    retry_in_seconds: float | None

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


class MessageDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of one message beyond the list."""

    message: ListedMessage
    error: str
    first_error: str
    #: The end of the traceback of the last error.
    trace: str
    #: Seconds since the epoch; None: it has not failed.
    first_failed_at: float | None
    paths: list[str]

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


@value
class Page:
    """Some messages of a list, in order."""

    messages: tuple[ListedMessage, ...]
    #: Where the next page begins; empty behind the last.
    cursor: str


def page(url: str, where: Filter, *, cursor: str = "", limit: int = 50) -> Page:
    """List the messages that match: of each queue the oldest first, or in the order of their retry.

    At most `MAX_EXAMINED` are examined, so a page may hold fewer than `limit`, or none, and not be the last.
    Raises BadRequest for a cursor that is not one of a page before.
    """
    found: list[ListedMessage] = []
    with redis_client.connected(url) as client:
        queues = where.queues(client)
        name, _, rank = cursor.partition(".") if cursor else (queues[0], "", "0")
        if name not in queues or not rank.isdecimal() or len(rank) > 9:
            raise BadRequest(f"{cursor[:80]!r} is not a place in this list", hint="begin with the first page")
        at, first, examined = queues.index(name), int(rank), 0
        select = client.register_script(_SELECT)
        while at < len(queues) and len(found) < limit and examined < MAX_EXAMINED:
            more, behind = _select(client, select, where, queues[at], first, limit - len(found))
            now = time.time()
            # Bytes: an error that was cut may end in the middle of a letter.
            rows = ([part.decode("utf-8", "replace") for part in each] for each in more)
            briefs = (dict(zip(_FIELDS, row, strict=True)) for row in rows)
            found += [_listed(queues[at], where.state, brief, now) for brief in briefs]
            examined += _EXAMINED if behind < 0 else behind - first
            at, first = (at + 1, 0) if behind < 0 else (at, behind)
    return Page(messages=tuple(found), cursor=f"{queues[at]}.{first}" if at < len(queues) else "")


def matching(url: str, where: Filter, *, limit: int | None = None) -> list[tuple[str, str]]:
    """Return (queue, id) of all messages that match, or of the first `limit`, in the order of `page`."""
    found: list[tuple[str, str]] = []
    with redis_client.connected(url) as client:
        select = client.register_script(_SELECT)
        for queue in where.queues(client):
            first = 0
            while first >= 0 and (limit is None or len(found) < limit):
                more, first = _select(client, select, where, queue, first, _EXAMINED, only_ids=True)
                found += [(queue, raw_id.decode("utf-8", "replace")) for raw_id in more]
    return found[:limit]


def details(url: str, state: str, queue: str, message_id: str) -> MessageDetails | None:
    """Read one message as it is now; None when it is not in that state any more."""
    _check(queue)
    ids, contents = _KEYS[state]
    with redis_client.connected(url) as client:
        base = key(client, queue)
        if state == WAITING:
            at: Any = 0.0 if client.lpos(base, message_id) is not None else None
        else:
            at = client.zscore(f"{base}{ids}", message_id)
        raw: Any = client.hget(f"{base}{contents}", message_id)
    if at is None or raw is None:
        return None
    try:
        message = msgspec.msgpack.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        message = {}
    options = message.get("options")
    options = options if isinstance(options, dict) else {}
    about = _first(message.get("args"))
    files = [each.get("path", "") for each in _list(about.get("files")) if isinstance(each, dict)]
    paths = [str(each) for each in (*_list(about.get("paths")), *files)]
    paths += [about["session"]] if isinstance(about.get("session"), str) else []
    error = str(options.get("error", "")) or ("" if message.get("actor_name") else _UNREADABLE)
    brief = {
        "id": message_id,
        "at_ms": at,
        "actor": str(message.get("actor_name", "")),
        "agent": str(about.get("agent", "")),
        "path": paths[0] if paths else "",
        "error": error,
        "paths": len(paths),
        "bytes": len(raw),
        "retries": _number(options.get("retries")),
        "sent_ms": _number(message.get("message_timestamp")),
    }
    return MessageDetails(
        message=_listed(queue, state, brief, time.time()),
        error=error,
        first_error=str(options.get("first_error", "")) or error,
        trace=str(options.get("trace", "")),
        first_failed_at=_number(options.get("first_failed_at")) / 1000 or None,
        paths=paths,
    )


def requeue(url: str, state: str, chosen: Sequence[tuple[str, str]]) -> int:
    """Put dead or delayed messages (queue, id) on their queues; returns how many were still there."""
    done = 0
    with redis_client.connected(url) as client:
        dead, delayed = client.register_script(_REQUEUE_DEAD), client.register_script(_RETRY_NOW)
        for queue, ids in _groups(chosen):
            base = key(client, queue)
            keys = [f"{base}{ending}" for ending in _KEYS[state]]
            if state == DELAYED:
                done += int(delayed(keys=[*keys, base], args=ids))
                continue
            stored: Any = client.hmget(keys[1], ids)
            pairs = [(each, _as_new(raw)) for each, raw in zip(ids, stored, strict=True) if raw is not None]
            args = [part for pair in pairs for part in pair]
            done += int(dead(keys=[*keys, base, f"{base}.msgs"], args=args)) if args else 0
    return done


def drop(url: str, state: str, chosen: Sequence[tuple[str, str]]) -> int:
    """Remove messages (queue, id) for good; returns how many were still there.

    Nothing is lost: what they are about is in the rows, and is sent again where it is still wanted.
    """
    done = 0
    with redis_client.connected(url) as client:
        script = client.register_script(_DROP)
        for queue, ids in _groups(chosen):
            keys = [f"{key(client, queue)}{ending}" for ending in _KEYS[state]]
            done += int(script(keys=keys, args=["LREM" if state == WAITING else "ZREM", *ids]))
    return done


_UNREADABLE = "the message cannot be decoded"


# What could be decoded may be anything.


def _list(any_: object) -> list[Any]:
    return any_ if isinstance(any_, list) else []


def _first(arguments: object) -> dict[str, Any]:
    found = next(iter(_list(arguments)), None)
    return found if isinstance(found, dict) else {}


def _number(any_: object) -> float:
    return any_ if isinstance(any_, int | float) else 0


def _select(
    client: Redis, select: Any, where: Filter, queue: str, first: int, room: int, *, only_ids: bool = False
) -> tuple[list[Any], int]:
    """Read the messages of a queue that match, from a rank on: their `_FIELDS`, or ids; and the next rank."""
    keys = [f"{key(client, queue)}{ending}" for ending in _KEYS[where.state]]
    limits = [where.state, first, room, _EXAMINED, _EXAMINED_BYTES, _SHOWN_CHARS]
    fields = [where.actor, where.agent, where.path, where.error, "ids" if only_ids else ""]
    behind, found = select(keys=keys, args=[*limits, *fields])
    return found, int(behind)


def _listed(queue: str, state: str, brief: Mapping[str, Any], now: float) -> ListedMessage:
    """Make what is shown of a message; `brief` has the `_FIELDS`."""
    sent_s, at_s = float(brief["sent_ms"]) / 1000, float(brief["at_ms"]) / 1000
    return ListedMessage(
        id=brief["id"],
        queue=queue,
        index_host=hosts.split(queue)[1],
        state=state,
        actor=brief["actor"],
        agent=brief["agent"],
        path=brief["path"],
        paths=int(brief["paths"]),
        error=brief["error"],
        retries=int(brief["retries"]),
        bytes=int(brief["bytes"]),
        age_seconds=round(max(0.0, now - sent_s), 1) if sent_s else None,
        dead_seconds=round(max(0.0, now - at_s), 1) if state == DEAD else None,
        retry_in_seconds=round(max(0.0, at_s - now), 1) if state == DELAYED else None,
    )


def _groups(chosen: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Group messages (queue, id) by queue, at most `_CHANGED` at a time."""
    by_queue: dict[str, list[str]] = {}
    for queue, message_id in chosen:
        _check(queue)
        by_queue.setdefault(queue, []).append(message_id)
    for queue, ids in by_queue.items():
        for first in range(0, len(ids), _CHANGED):
            yield queue, ids[first : first + _CHANGED]


def _check(queue: str) -> None:
    if not hosts.is_queue(queue, QUEUES):
        raise BadRequest(f"there is no queue {queue[:80]!r}", hint=f"the queues are: {', '.join(QUEUES)}")


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
