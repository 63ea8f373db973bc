"""Keep vectors by text hash and identity: wanted, in flight, ready or failed, and the embedding cache.

    wanted --lease--> leased --store--> ready          active = 1: some chunk needs it
       ^                |                 |             active = 0: it stays as cache
       +---- later -----+---- refused --> failed (due: when to try again)

A text whose last chunk is removed while its request is in flight stays leased with active = 0. A batch may
return its vector a day later, and a chunk that needs the text again until then must not pay for it twice.

Wanted texts are sent by `priority`: those of live edits first, then those of a backfill, which is the first
import, a reindex or a new model. Those of a cancelled backfill stay where they are, so that the index still
knows what it lacks, until the operator resumes it.

All functions but `cancel_backfill` and `resume_backfill` run inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from memline.shared.index import meta, token_rows
from memline.shared.index.driver import in_slices, scalar, transaction
from memline.shared.index.identities import IdentityRow
from memline.shared.index.vec import VecTables
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.index.rows import VectorRow

#: Values of `priority`; the smaller one is sent first, CANCELLED never.
LIVE_EDIT, BACKFILL, CANCELLED = 0, 1, 2

#: Times a text whose answers are broken is sent before it is marked failed.
MAX_ATTEMPTS = 3

#: Seconds until a text whose answer was broken is sent again; doubled by each further time.
FIRST_RETRY_S = 2.0

#: Seconds until a failed text is tried again by a long-lived process; `index` tries at once.
FAILED_RETRY_S = 3_600.0

#: Seconds that vectors which came from elsewhere are kept at least, however many: until then their files have
#: been read. A cached vector is "used" at this time in the future.
IMPORTED_KEEP_S = 86_400.0

#: Rows a transaction of background work changes at most, so that a live edit never waits long.
SLICE_ROWS = 200


@value
class Backlog:
    """Counts of the active vectors of an identity, by state."""

    wanted: int = 0
    leased: int = 0
    ready: int = 0
    failed: int = 0
    #: Wanted by a backfill that was cancelled; not counted as wanted.
    cancelled: int = 0

    @property
    def in_progress(self) -> int:
        """Vectors that will be stored without any further request by a user."""
        return self.wanted + self.leased

    @property
    def pending(self) -> int:
        """Vectors that are not there and have not failed: how far the index is behind."""
        return self.in_progress + self.cancelled


def want(
    connection: Connection,
    vec: VecTables,
    identity: IdentityRow,
    texts: Mapping[bytes, int],
    *,
    priority: int,
    now: float,
) -> int:
    """Make sure every text hash (with its token estimate) has an active row; returns how many were cached.

    A text never gets a later priority than it has.
    """
    cached = 0
    activated: list[tuple[int, bytes]] = []
    missing: list[tuple[int, bytes, int, int]] = []
    for digest, tokens in texts.items():
        row = connection.execute(
            "SELECT id, state, active, priority FROM vectors WHERE identity_id = ? AND text_hash = ?",
            (identity.id, digest),
        ).fetchone()
        if row is None:
            missing.append((identity.id, digest, priority, tokens))
            continue
        row_id, state, is_active, old_priority = row
        if not is_active and state == "leased":
            connection.execute("UPDATE vectors SET active = 1 WHERE id = ?", (row_id,))
        if state == "ready":
            cached += 1
            if not is_active:
                embedding = connection.execute(
                    "UPDATE vectors SET active = 1, used_at = ? WHERE id = ? RETURNING embedding",
                    (now, row_id),
                ).fetchone()[0]
                activated.append((row_id, embedding))
        elif priority < old_priority:
            # A live edit needs a text of the backfill: it moves to the front.
            connection.execute("UPDATE vectors SET priority = ? WHERE id = ?", (priority, row_id))
    connection.executemany(
        "INSERT INTO vectors (identity_id, text_hash, state, priority, tokens) VALUES (?, ?, 'wanted', ?, ?)",
        missing,
    )
    vec.insert(identity.id, identity.vector_dims, activated)
    return cached


def release(connection: Connection, vec: VecTables, orphans: Sequence[bytes], now: float) -> None:
    """Turn the vectors of texts that no chunk needs any more into cache; drop what was never embedded."""
    for digest in orphans:
        deactivated = connection.execute(
            "UPDATE vectors SET active = 0, used_at = ?"
            " WHERE text_hash = ? AND state = 'ready' AND active = 1 RETURNING identity_id, id",
            (now, digest),
        ).fetchall()
        for identity_id, row_id in deactivated:
            vec.delete(identity_id, row_id)
        # What is in flight is stored as cache when it arrives.
        connection.execute(
            "UPDATE vectors SET active = 0 WHERE text_hash = ? AND state = 'leased'", (digest,)
        )
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
    """Store vectors by text hash; returns how many were new. Safe twice and late: a ready row stays as it is.

    The caller has checked the dimensions.
    """
    stored = 0
    active_rows: list[tuple[int, bytes]] = []
    tokens: list[tuple[int, bytes]] = []
    for row in rows:
        updated = connection.execute(
            "UPDATE vectors SET state = 'ready', embedding = ?, error = '', lease = NULL, attempts = 0,"
            " by_request = 0, used_at = ? WHERE identity_id = ? AND text_hash = ? AND state <> 'ready'"
            " RETURNING id, active",
            (row.vector, now, identity.id, row.hash),
        ).fetchone()
        if updated:
            stored += 1
            if updated[1]:
                active_rows.append((updated[0], row.vector))
            if row.tokens:
                tokens.append((updated[0], row.tokens))
            continue
        # Its chunk was removed meanwhile; it is paid for, so it is kept as cache. Not one upsert of both: it
        # would take an id for every vector, and a batch would wait for texts that seem to be coming.
        connection.execute(
            "INSERT INTO vectors (identity_id, text_hash, state, active, used_at, embedding)"
            " SELECT ?1, ?2, 'ready', 0, ?3, ?4"
            # Its text was forgotten meanwhile: then nothing of it is kept.
            " WHERE NOT EXISTS (SELECT 1 FROM forgotten WHERE kind = 'text' AND hash = ?2)"
            " ON CONFLICT (identity_id, text_hash) DO NOTHING",
            (identity.id, row.hash, now, row.vector),
        )
    vec.insert(identity.id, len(active_rows[0][1]) // 4 if active_rows else 0, active_rows)
    token_rows.store(connection, identity.id, tokens)
    return stored


@value
class LeasedTexts:
    """Texts that returned without a vector; what is recorded of them counts only while their lease holds."""

    identity_id: int
    lease: str
    hashes: Sequence[bytes]


def defer(connection: Connection, texts: LeasedTexts, error: str) -> int:
    """Make these texts wanted again, and count no attempt; returns how many."""
    return _return_texts(connection, texts, error, "state = 'wanted', due = 0")


def retry_or_fail(connection: Connection, texts: LeasedTexts, error: str, now: float) -> int:
    """Count an attempt of these texts: wanted again after a backoff, failed after the last.

    Returns how many. From then on they are sent in requests, where what is wrong shows soonest.
    """
    changes = (
        "attempts = attempts + 1, by_request = 1, state = iif(attempts + 1 >= ?, 'failed', 'wanted'),"
        " due = ? + iif(attempts + 1 >= ?, ?, ? * (1 << attempts))"
    )
    values = (MAX_ATTEMPTS, now, MAX_ATTEMPTS, FAILED_RETRY_S, FIRST_RETRY_S)
    return _return_texts(connection, texts, error, changes, *values)


def fail(connection: Connection, texts: LeasedTexts, error: str, now: float) -> int:
    """Mark these texts failed, to be tried again in an hour; returns how many."""
    changes = "state = 'failed', due = ?, attempts = attempts + 1"
    return _return_texts(connection, texts, error, changes, now + FAILED_RETRY_S)


def _return_texts(
    connection: Connection, texts: LeasedTexts, error: str, changes: str, *values: float
) -> int:
    cursor = connection.executemany(
        f"UPDATE vectors SET lease = NULL, error = ?, {changes}"
        " WHERE identity_id = ? AND text_hash = ? AND lease = ?",
        ((error, *values, texts.identity_id, digest, texts.lease) for digest in texts.hashes),
    )
    drop_unneeded(connection)
    return int(cursor.rowcount)


def drop_unneeded(connection: Connection) -> None:
    """Delete texts that returned without a vector and that no chunk needs any more."""
    connection.execute(
        "DELETE FROM vectors WHERE identity_id IN (SELECT id FROM identities) AND active = 0"
        " AND state IN ('wanted', 'failed')"
    )


def retry_failed(connection: Connection, identity_id: int, *, due_before: float | None) -> int:
    """Make failed texts wanted again: those due before a time, or all of them when it is None."""
    cursor = connection.execute(
        # In a request it shows sooner what is wrong with it, and one text is not worth a batch.
        "UPDATE vectors SET state = 'wanted', due = 0, attempts = 0, by_request = 1"
        " WHERE identity_id = ? AND state = 'failed' AND state <> 'ready' AND (? IS NULL OR due < ?)",
        (identity_id, due_before, due_before),
    )
    return int(cursor.rowcount)


def backlog(connection: Connection, identity_id: int) -> Backlog:
    """Count the active vectors of an identity by state."""
    rows = connection.execute(
        "SELECT state, count(*) FROM vectors WHERE identity_id = ? AND active = 1 GROUP BY state",
        (identity_id,),
    )
    counts: dict[str, int] = dict(rows.fetchall())
    if wanted := counts.get("wanted"):
        cancelled = count_by_priority(connection, identity_id, CANCELLED)
        counts.update(wanted=wanted - cancelled, cancelled=cancelled)
    return Backlog(**counts)


def is_wanted(connection: Connection, identity_id: int) -> bool:
    """Tell whether any text waits to be sent."""
    query = (
        "SELECT 1 FROM vectors WHERE identity_id = ? AND state = 'wanted' AND state <> 'ready'"
        f" AND priority < {CANCELLED} LIMIT 1"
    )
    return connection.execute(query, (identity_id,)).fetchone() is not None


def is_pending(connection: Connection, identity_id: int) -> bool:
    """Tell whether any vector of an identity is wanted or in flight."""
    query = (
        "SELECT 1 FROM vectors WHERE identity_id = ? AND active = 1 AND state IN ('wanted', 'leased') LIMIT 1"
    )
    return bool(scalar(connection, query, identity_id))


def count_pending(connection: Connection, identity_id: int) -> int:
    """Count the vectors of an identity that are wanted or in flight: `Backlog.pending`.

    Of the index of counts only these are read, not the ready ones: a question counts them each time.
    """
    query = (
        "SELECT count(*) FROM vectors WHERE identity_id = ? AND active = 1 AND state IN ('wanted', 'leased')"
    )
    return int(scalar(connection, query, identity_id))


def is_any_ready(connection: Connection, identity_id: int) -> bool:
    """Tell whether an identity has any vector that a chunk needs."""
    query = "SELECT 1 FROM vectors WHERE identity_id = ? AND active = 1 AND state = 'ready' LIMIT 1"
    return bool(scalar(connection, query, identity_id))


def next_due(connection: Connection, identity_id: int) -> float | None:
    """Return when the next wanted vector may be sent (seconds since the epoch); None when none is wanted."""
    due: float | None = scalar(
        connection,
        "SELECT min(due) FROM vectors"
        " WHERE identity_id = ? AND state = 'wanted' AND state <> 'ready' AND priority < ?",
        identity_id,
        CANCELLED,
    )
    return due


def failures(connection: Connection, identity_id: int, limit: int) -> list[tuple[str, str, str]]:
    """List (text hash in hex, error, a path with the text) of failed texts."""
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


def count_cached(connection: Connection) -> int:
    """Count the ready vectors that no chunk needs: the cache proper."""
    return int(scalar(connection, _COUNT_CACHED))


def count_ready(connection: Connection) -> int:
    """Count all ready vectors, active or cached: what `status` calls cache entries."""
    return int(scalar(connection, "SELECT count(*) FROM vectors WHERE state = 'ready'"))


_COUNT_CACHED = (
    "SELECT count(*) FROM vectors WHERE identity_id IN (SELECT id FROM identities) AND active = 0"
    " AND state = 'ready'"
)


def take_in(
    connection: Connection, vec: VecTables, identity: IdentityRow, rows: Sequence[VectorRow], now: float
) -> int:
    """Store vectors that were made elsewhere; returns how many this index did not have.

    The caller has checked the dimensions. What no chunk needs yet is cached, and kept for a day at least.
    """
    is_ready = "SELECT 1 FROM vectors WHERE identity_id = ? AND text_hash = ? AND state = 'ready'"
    new = [row for row in rows if not scalar(connection, is_ready, identity.id, row.hash)]
    store(connection, vec, identity, new, now + IMPORTED_KEEP_S)
    return len(new)


def prune_cache(connection: Connection, keep: int, now: float) -> None:
    """Remove cached vectors, least recently used first, until `keep` are left.

    Those that were imported within `IMPORTED_KEEP_S` are neither removed nor counted.
    """
    statement = (
        "DELETE FROM vectors WHERE id IN (SELECT id FROM vectors WHERE active = 0 AND state = 'ready'"
        " AND used_at <= ?1 ORDER BY used_at, id"
        f" LIMIT min(max(({_COUNT_CACHED} AND used_at <= ?1) - ?2, 0), ?3))"
    )
    in_slices(connection, statement, now, keep, SLICE_ROWS)


def count_by_priority(connection: Connection, identity_id: int, priority: int) -> int:
    """Count the wanted texts of one priority."""
    query = (
        "SELECT count(*) FROM vectors"
        " WHERE state = 'wanted' AND state <> 'ready' AND identity_id = ? AND priority = ?"
    )
    return int(scalar(connection, query, identity_id, priority))


def priority_of(connection: Connection, *, is_backfill: bool, asked_ns: int) -> int:
    """Return the priority of texts asked for at `asked_ns`, perhaps before a cancellation."""
    if not is_backfill:
        return LIVE_EDIT
    # A producer of another release may not say when.
    return CANCELLED if asked_ns and is_backfill_cancelled(connection, asked_ns) else BACKFILL


def is_backfill_cancelled(connection: Connection, asked_ns: int) -> bool:
    """Tell whether a backfill asked for at `asked_ns` (ns since the epoch) has been cancelled since."""
    return bool(meta.get(connection, meta.CANCELLED_NS, 0) > asked_ns)


def cancel_backfill(connection: Connection, now_ns: int) -> int:
    """Cancel the texts of a backfill, also those that are still on their way to the index.

    Returns how many will not be sent now. Requests in flight are stored as usual; of those, only a text that
    would have to be sent again is cancelled.
    """
    with transaction(connection):
        # First, so that what is stored from here on respects it.
        meta.put(connection, meta.CANCELLED_NS, now_ns)
    _change_priority(connection, "leased", BACKFILL, CANCELLED)
    return _change_priority(connection, "wanted", BACKFILL, CANCELLED)


def resume_backfill(connection: Connection) -> int:
    """Let cancelled texts be a backfill again; returns how many."""
    _change_priority(connection, "leased", CANCELLED, BACKFILL)
    return _change_priority(connection, "wanted", CANCELLED, BACKFILL)


def _change_priority(connection: Connection, state: str, old: int, new: int) -> int:
    statement = (
        "UPDATE vectors SET priority = ? WHERE id IN"
        " (SELECT id FROM vectors WHERE state = ? AND state <> 'ready' AND priority = ? LIMIT ?)"
    )
    return in_slices(connection, statement, new, state, old, SLICE_ROWS)
