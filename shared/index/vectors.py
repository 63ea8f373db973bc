"""Vectors by text hash and identity: what is wanted, in flight, ready or failed, and the embedding cache.

    wanted --lease--> leased --store--> ready          live = 1: some chunk needs it
       ^                |                 |             live = 0: it rests in the cache
       +---- later -----+---- refused --> failed (due: when to try again)

A text whose last chunk goes while it is out stays leased with live = 0: a batch may bring it a day later, and
if it comes back until then it must not be paid for twice.

All functions run inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from shared.index import backfill as turns
from shared.index.identity import IdentityRow
from shared.index.vec import VecTables
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.index.rows import VectorRow

#: Times a text whose answers are broken is sent before it is marked failed.
MAX_ATTEMPTS = 3

#: Seconds until a text whose answer was broken is sent again; doubled by each further time.
FIRST_RETRY_S = 2.0

#: Seconds until a failed text is tried again by a long-lived process; `index` tries at once.
FAILED_RETRY_S = 3_600.0


@value
class Backlog:
    """States of the live vectors of an identity."""

    wanted: int = 0
    leased: int = 0
    ready: int = 0
    failed: int = 0
    #: Set aside when their backfill was cancelled; not counted as wanted.
    cancelled: int = 0

    @property
    def coming(self) -> int:
        """Vectors that come without anybody's doing."""
        return self.wanted + self.leased

    @property
    def pending(self) -> int:
        """Vectors that are not there and have not failed: how far the index is behind."""
        return self.coming + self.cancelled


def want(
    connection: Connection,
    vec: VecTables,
    identity: IdentityRow,
    texts: Mapping[bytes, int],
    *,
    backfill: int,
    now: float,
) -> int:
    """Make sure every text hash (with its token estimate) has a live row; returns how many were cached.

    `backfill` is the turn they go out in, see `shared.index.backfill`. A text never moves back.
    """
    cached = 0
    back: list[tuple[int, bytes]] = []
    missing: list[tuple[int, bytes, int, int]] = []
    for digest, tokens in texts.items():
        row = connection.execute(
            "SELECT id, state, live, backfill FROM vectors WHERE identity_id = ? AND text_hash = ?",
            (identity.id, digest),
        ).fetchone()
        if row is None:
            missing.append((identity.id, digest, int(backfill), tokens))
            continue
        row_id, state, live, was_backfill = row
        if not live and state == "leased":
            connection.execute("UPDATE vectors SET live = 1 WHERE id = ?", (row_id,))
        if state == "ready":
            cached += 1
            if not live:
                embedding = connection.execute(
                    "UPDATE vectors SET live = 1, used_at = ? WHERE id = ? RETURNING embedding", (now, row_id)
                ).fetchone()[0]
                back.append((row_id, embedding))
        elif backfill < was_backfill:
            # A live edit needs a text of the backfill: it moves to the front.
            connection.execute("UPDATE vectors SET backfill = ? WHERE id = ?", (int(backfill), row_id))
    connection.executemany(
        "INSERT INTO vectors (identity_id, text_hash, state, backfill, tokens) VALUES (?, ?, 'wanted', ?, ?)",
        missing,
    )
    vec.insert(identity.id, identity.vector_dims, back)
    return cached


def release(connection: Connection, vec: VecTables, orphans: Sequence[bytes], now: float) -> None:
    """No chunk needs these texts any more: ready vectors rest in the cache, the others are dropped."""
    for digest in orphans:
        rested = connection.execute(
            "UPDATE vectors SET live = 0, used_at = ?"
            " WHERE text_hash = ? AND state = 'ready' AND live = 1 RETURNING identity_id, id",
            (now, digest),
        ).fetchall()
        for identity_id, row_id in rested:
            vec.delete(identity_id, (row_id,))
        # What is out comes back into the cache.
        connection.execute("UPDATE vectors SET live = 0 WHERE text_hash = ? AND state = 'leased'", (digest,))
        connection.execute(
            "DELETE FROM vectors WHERE text_hash = ? AND state NOT IN ('ready', 'leased')", (digest,)
        )


def store(
    connection: Connection,
    vec: VecTables,
    identity: IdentityRow,
    rows: Iterable[VectorRow],
    now: float,
) -> int:
    """Keep vectors by text hash; returns how many were new. Safe twice and late: a ready row stays as it is.

    The caller has checked the dimensions.
    """
    stored = 0
    live_rows: list[tuple[int, bytes]] = []
    for row in rows:
        found = connection.execute(
            "UPDATE vectors SET state = 'ready', embedding = ?, error = '', lease = NULL, attempts = 0,"
            " by_request = 0, used_at = ? WHERE identity_id = ? AND text_hash = ? AND state <> 'ready'"
            " RETURNING id, live",
            (row.vector, now, identity.id, row.hash),
        ).fetchone()
        if found:
            stored += 1
            if found[1]:
                live_rows.append((found[0], row.vector))
            continue
        # Its chunk is gone meanwhile; it is paid for, so it rests in the cache.
        connection.execute(
            "INSERT INTO vectors (identity_id, text_hash, state, live, used_at, embedding)"
            " VALUES (?, ?, 'ready', 0, ?, ?) ON CONFLICT (identity_id, text_hash) DO NOTHING",
            (identity.id, row.hash, now, row.vector),
        )
    vec.insert(identity.id, len(live_rows[0][1]) // 4 if live_rows else 0, live_rows)
    return stored


def put_back(
    connection: Connection,
    identity_id: int,
    lease: str,
    hashes: Sequence[bytes],
    *,
    due: float,
    error: str,
    counts: bool,
) -> int:
    """These texts go out again at `due`; returns how many. Only while the lease holds.

    `counts` adds an attempt; from then on the text goes out in a request, where what is wrong shows soonest.
    """
    cursor = connection.executemany(
        "UPDATE vectors SET state = 'wanted', lease = NULL, due = ?, error = ?, attempts = attempts + ?,"
        " by_request = max(by_request, ?) WHERE identity_id = ? AND text_hash = ? AND lease = ?",
        ((due, error, int(counts), int(counts), identity_id, digest, lease) for digest in hashes),
    )
    drop_unneeded(connection)
    return int(cursor.rowcount)


def give_up(
    connection: Connection,
    identity_id: int,
    lease: str,
    hashes: Sequence[bytes],
    *,
    error: str,
    now: float,
) -> int:
    """These texts failed for good, as far as we can tell; returns how many. Only while the lease holds."""
    cursor = connection.executemany(
        "UPDATE vectors SET state = 'failed', lease = NULL, due = ?, error = ?, attempts = attempts + 1"
        " WHERE identity_id = ? AND text_hash = ? AND lease = ?",
        ((now + FAILED_RETRY_S, error, identity_id, digest, lease) for digest in hashes),
    )
    drop_unneeded(connection)
    return int(cursor.rowcount)


def drop_unneeded(connection: Connection) -> None:
    """Forget texts that came back without a vector and that no chunk needs any more."""
    connection.execute(
        "DELETE FROM vectors WHERE identity_id IN (SELECT id FROM identities) AND live = 0"
        " AND state IN ('wanted', 'failed')"
    )


def attempts(connection: Connection, identity_id: int, digest: bytes) -> int:
    """How often this text was sent and did not come back."""
    row = connection.execute(
        "SELECT attempts FROM vectors WHERE identity_id = ? AND text_hash = ?", (identity_id, digest)
    ).fetchone()
    return int(row[0]) if row else 0


def retry_failed(connection: Connection, identity_id: int, *, due_before: float | None) -> int:
    """Failed texts become wanted again: those due before a time, or all of them when it is None."""
    cursor = connection.execute(
        # One by one it shows sooner what is wrong with it, and a batch of one text is worth nobody's while.
        "UPDATE vectors SET state = 'wanted', due = 0, attempts = 0, by_request = 1"
        " WHERE identity_id = ? AND state = 'failed' AND state <> 'ready' AND (? IS NULL OR due < ?)",
        (identity_id, due_before, due_before),
    )
    return int(cursor.rowcount)


def backlog(connection: Connection, identity_id: int) -> Backlog:
    """Counts of the live vectors of an identity, by state."""
    rows = connection.execute(
        "SELECT state, count(*) FROM vectors WHERE identity_id = ? AND live = 1 GROUP BY state",
        (identity_id,),
    )
    counts: dict[str, int] = dict(rows.fetchall())
    if wanted := counts.get("wanted"):
        cancelled = turns.count(connection, identity_id, turns.SET_ASIDE)
        counts.update(wanted=wanted - cancelled, cancelled=cancelled)
    return Backlog(**counts)


def is_pending(connection: Connection, identity_id: int) -> bool:
    """Whether any vector of an identity is still to come."""
    row = connection.execute(
        "SELECT 1 FROM vectors WHERE identity_id = ? AND live = 1 AND state IN ('wanted', 'leased') LIMIT 1",
        (identity_id,),
    ).fetchone()
    return row is not None


def is_any_ready(connection: Connection, identity_id: int) -> bool:
    """Whether an identity has brought any vector that a chunk needs."""
    row = connection.execute(
        "SELECT 1 FROM vectors WHERE identity_id = ? AND live = 1 AND state = 'ready' LIMIT 1", (identity_id,)
    ).fetchone()
    return row is not None


def next_due(connection: Connection, identity_id: int) -> float | None:
    """When the next wanted vector may go out (seconds since the epoch); None when none is wanted."""
    row = connection.execute(
        "SELECT min(due) FROM vectors"
        " WHERE identity_id = ? AND state = 'wanted' AND state <> 'ready' AND backfill < ?",
        (identity_id, turns.SET_ASIDE),
    ).fetchone()
    return None if row[0] is None else float(row[0])


def failures(connection: Connection, identity_id: int, limit: int) -> list[tuple[str, str, str]]:
    """(text hash in hex, error, a path that holds the text) of failed texts."""
    return list(
        connection.execute(
            "SELECT lower(hex(text_hash)), error,"
            " (SELECT files.path FROM chunks JOIN files ON files.id = chunks.file_id"
            "  WHERE chunks.text_hash = vectors.text_hash LIMIT 1)"
            " FROM vectors WHERE identity_id = ? AND state = 'failed' AND state <> 'ready'"
            " ORDER BY id LIMIT ?",
            (identity_id, limit),
        )
    )


def resting(connection: Connection) -> int:
    """Vectors that no live chunk needs: the cache proper."""
    row = connection.execute(
        "SELECT count(*) FROM vectors WHERE identity_id IN (SELECT id FROM identities) AND live = 0"
        " AND state = 'ready'"
    ).fetchone()
    return int(row[0])


def cached_entries(connection: Connection) -> int:
    """All vectors at hand, live or resting: what `status` calls cache entries."""
    return int(connection.execute("SELECT count(*) FROM vectors WHERE state = 'ready'").fetchone()[0])


def prune(connection: Connection, keep: int, limit: int) -> int:
    """Remove at most `limit` resting vectors, least recently used first, until `keep` are left."""
    excess = resting(connection) - keep
    if excess <= 0:
        return 0
    cursor = connection.execute(
        "DELETE FROM vectors WHERE id IN"
        " (SELECT id FROM vectors WHERE live = 0 AND state = 'ready' ORDER BY used_at, id LIMIT ?)",
        (min(excess, limit),),
    )
    return int(cursor.rowcount)
