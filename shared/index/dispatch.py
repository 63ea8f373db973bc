"""The dispatcher: leases wanted vectors and packs them into requests, one provider request a lease.

A lease is a row with an end. Whoever holds it may fail, hang or die: when the lease runs out, or its
owner's process is gone, its texts are wanted again. A vector that came back is never leased again.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shared.embedders.protocol import Identity, RequestCaps
from shared.index import breaker, health, vectors
from shared.index.backfill import BACKFILL, LIVE, SET_ASIDE
from shared.index.driver import transaction
from shared.index.identity import IdentityRow, by_id
from shared.index.rows import TextRow

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Seconds a lease holds. Longer than the slowest call (3 tries of 60 s) and its wait in the queue, because
#: a lease that runs out early is paid for twice; a dead owner's leases are freed at once (`free_orphans`).
LEASE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Texts leased together: the content of one `EmbedTexts` message."""

    lease: str
    identity: Identity
    texts: tuple[TextRow, ...]
    #: Whether it only finds out if the provider is well again.
    is_probe: bool = False


def this_owner() -> str:
    """`host:pid:start`, which names this process and no later one with the same pid."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_start_time(pid)}"


def lease(
    connection: Connection,
    identity: IdentityRow,
    caps: RequestCaps,
    *,
    credits: int,
    owner: str,
    now: float,
    only_full: bool,
    lease_s: float = LEASE_S,
    above: int = -1,
) -> list[Request]:
    """Lease as many requests as `credits` allow; live edits first, then the backfill, oldest first.

    `credits` bounds the requests in flight over all processes, so the queue of work stays in the rows and
    a live edit waits behind seconds of work, not hours. With `only_full`, a rest that would make a small
    request waits while another request is out (Nagle's rule): more texts may join it meanwhile.
    `above`: texts with a row id up to it wait for a batch (`shared.index.batch_dispatch`), but for those that
    a batch could not bring.
    """
    requests: list[Request] = []
    while True:
        with transaction(connection):
            in_flight = _in_flight(connection, identity.id, now)
            if in_flight >= credits:
                return requests
            ids, is_full = _next_rows(connection, identity.id, caps, now, above)
            if not ids or (only_full and not is_full and in_flight):
                return requests
            token = uuid.uuid4().hex
            requests.append(_take(connection, identity, ids, token=token, owner=owner, until=now + lease_s))


def probe(
    connection: Connection,
    identity: IdentityRow,
    caps: RequestCaps,
    *,
    owner: str,
    now: float,
    lease_s: float = LEASE_S,
) -> Request | None:
    """Lease the one request that may go to a provider whose breaker is open; None when none may go.

    Its one text is the next that is wanted, or one of the index whose vector nobody needs: what comes back
    tells of the provider all the same.
    """
    provider = identity.identity.provider
    with transaction(connection):
        was = health.read(connection, provider)
        if was.state == breaker.HALF_OPEN and not _is_out(connection, was.probe):
            was = breaker.lost_probe(was, was.probe, now)
        token = uuid.uuid4().hex
        after = breaker.began_probe(was, token, now)
        if after is None or _in_flight(connection, identity.id, now):
            # What went out before it opened is not over yet.
            return None
        ids, _ = _next_rows(connection, identity.id, replace(caps, max_rows=1), now, -1)
        until = now + lease_s
        request = (
            _take(connection, identity, ids, token=token, owner=owner, until=until)
            if ids
            else _take_any(connection, identity, token=token, owner=owner, until=until)
        )
        if request is None:
            return None
        health.write(connection, provider, after, now)
        return replace(request, is_probe=True)


def requests_out(connection: Connection) -> int:
    """Leases that hold texts: requests sent and not answered yet."""
    return int(connection.execute("SELECT count(*) FROM leases").fetchone()[0])


def content(connection: Connection, token: str) -> tuple[Identity, list[bytes]] | None:
    """Identity and text hashes of a request that is out; None when it is no more."""
    row = connection.execute("SELECT identity_id FROM leases WHERE token = ?", (token,)).fetchone()
    found = by_id(connection, row[0]) if row else None
    if found is None:
        return None
    rows = connection.execute("SELECT text_hash FROM vectors WHERE lease = ? ORDER BY id", (token,))
    return found.identity, [digest for (digest,) in rows]


def settle(connection: Connection, token: str) -> None:
    """End a lease that no row holds any more, inside the caller's transaction."""
    connection.execute(
        "DELETE FROM leases WHERE token = ? AND NOT EXISTS (SELECT 1 FROM vectors"
        " WHERE lease = leases.token)",
        (token,),
    )


def free_overdue(connection: Connection, now: float) -> int:
    """Texts of leases that ran out, or were lost, are wanted again, inside the caller's transaction."""
    connection.execute("DELETE FROM leases WHERE until <= ?", (now,))
    freed = 0
    for (token,) in connection.execute(_LOST_TOKENS).fetchall():
        freed += connection.execute(
            "UPDATE vectors SET state = 'wanted', lease = NULL WHERE lease = ?", (token,)
        ).rowcount
    if freed:
        vectors.drop_unneeded(connection)
    return freed


#: Leases that rows hold and nobody keeps. From token to token through the index: an open batch holds tens of
#: thousands of rows, and this is asked every few seconds.
_LOST_TOKENS = """
WITH RECURSIVE held (token) AS (
    SELECT min(lease) FROM vectors WHERE lease IS NOT NULL
    UNION ALL
    SELECT (SELECT min(lease) FROM vectors WHERE lease > held.token) FROM held WHERE held.token IS NOT NULL
)
SELECT token FROM held WHERE token IS NOT NULL
    AND token NOT IN (SELECT token FROM leases)
    AND token NOT IN (SELECT token FROM batches WHERE state <> 'closed')
"""


def free(connection: Connection, tokens: Sequence[str], now: float) -> int:
    """End these leases, inside the caller's transaction; their texts are wanted again."""
    connection.executemany("DELETE FROM leases WHERE token = ?", ((token,) for token in tokens))
    return free_overdue(connection, now)


def free_orphans(connection: Connection, now: float) -> int:
    """End the leases of processes of this host that are gone, inside the caller's transaction."""
    owners = [row[0] for row in connection.execute("SELECT DISTINCT owner FROM leases")]
    for owner in owners:
        if not is_alive(owner):
            connection.execute("DELETE FROM leases WHERE owner = ?", (owner,))
    return free_overdue(connection, now)


def _next_rows(
    connection: Connection, identity_id: int, caps: RequestCaps, now: float, above: int
) -> tuple[list[int], bool]:
    """Ids of the rows of the next request, and whether it is as large as the caps allow."""
    ids: list[int] = []
    tokens = 0
    for row_id, row_tokens in _wanted(connection, identity_id, caps.max_rows, now, above):
        if ids and tokens + row_tokens > caps.max_tokens:
            return ids, True
        ids.append(row_id)
        tokens += row_tokens
    return ids, len(ids) >= caps.max_rows


def _wanted(
    connection: Connection, identity_id: int, limit: int, now: float, above: int
) -> list[tuple[int, int]]:
    """(id, tokens) of the next texts that may go out in a request."""
    # The second condition on the state is what lets SQLite use the partial indexes.
    if above < 0:
        return connection.execute(
            "SELECT id, tokens FROM vectors WHERE identity_id = ? AND state = 'wanted' AND state <> 'ready'"
            " AND due <= ? AND backfill < ? ORDER BY backfill, id LIMIT ?",
            (identity_id, now, SET_ASIDE, limit),
        ).fetchall()
    # Each turn by itself, and by the index of what goes in requests (the +): SQLite would walk over all texts
    # that wait for a batch.
    found = connection.execute(
        "SELECT backfill, id, tokens FROM vectors WHERE identity_id = ? AND by_request = 1"
        " AND state <> 'ready' AND +state = 'wanted' AND due <= ? AND backfill < ?"
        " ORDER BY backfill, id LIMIT ?",
        (identity_id, now, SET_ASIDE, limit),
    ).fetchall()
    for turn in (LIVE, BACKFILL):
        found += connection.execute(
            "SELECT backfill, id, tokens FROM vectors WHERE identity_id = ? AND state = 'wanted'"
            " AND state <> 'ready' AND backfill = ? AND id > ? AND by_request = 0 AND due <= ?"
            " ORDER BY id LIMIT ?",
            (identity_id, turn, above, now, limit),
        ).fetchall()
    return [(row_id, tokens) for _, row_id, tokens in sorted(found)[:limit]]


def _take(
    connection: Connection, identity: IdentityRow, ids: list[int], *, token: str, owner: str, until: float
) -> Request:
    texts: list[TextRow] = []
    for row_id in ids:
        digest = connection.execute(
            "UPDATE vectors SET state = 'leased', lease = ? WHERE id = ? RETURNING text_hash", (token, row_id)
        ).fetchone()[0]
        text = connection.execute("SELECT text FROM chunks WHERE text_hash = ? LIMIT 1", (digest,)).fetchone()
        texts.append(TextRow(hash=digest, text=text[0]))
    _note(connection, identity, texts, token=token, owner=owner, until=until)
    return Request(lease=token, identity=identity.identity, texts=tuple(texts))


def _take_any(
    connection: Connection, identity: IdentityRow, *, token: str, owner: str, until: float
) -> Request | None:
    """A request with the newest text of the index, whatever the state of its vector."""
    row = connection.execute("SELECT text_hash, text FROM chunks ORDER BY id DESC LIMIT 1").fetchone()
    if row is None:
        return None
    texts = [TextRow(hash=row[0], text=row[1])]
    _note(connection, identity, texts, token=token, owner=owner, until=until)
    return Request(lease=token, identity=identity.identity, texts=tuple(texts))


def _note(
    connection: Connection,
    identity: IdentityRow,
    texts: Sequence[TextRow],
    *,
    token: str,
    owner: str,
    until: float,
) -> None:
    connection.execute(
        "INSERT INTO leases (token, identity_id, owner, until, rows) VALUES (?, ?, ?, ?, ?)",
        (token, identity.id, owner, until, len(texts)),
    )


def _in_flight(connection: Connection, identity_id: int, now: float) -> int:
    row = connection.execute(
        "SELECT count(*) FROM leases WHERE identity_id = ? AND until > ?", (identity_id, now)
    ).fetchone()
    return int(row[0])


def _is_out(connection: Connection, token: str) -> bool:
    return connection.execute("SELECT 1 FROM leases WHERE token = ?", (token,)).fetchone() is not None


def is_alive(owner: str) -> bool:
    """Whether the process behind `owner` still runs; True when it is on another host and nobody can tell."""
    host, _, rest = owner.rpartition(":")[0].rpartition(":")
    started = owner.rpartition(":")[2]
    if host != socket.gethostname() or not rest.isdigit():
        return True
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _start_time(int(rest)) == started


def _start_time(pid: int) -> str:
    """Ticks since boot at which a process started (Linux), else an empty string.

    A process that was killed and whose parent has not taken notice yet works no more: its time is "dead".
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # Fields 3 and 22; the second field, the name in brackets, may itself hold spaces.
    fields = stat.rpartition(")")[2].split()
    return "dead" if fields[0] in "ZX" else fields[19]
