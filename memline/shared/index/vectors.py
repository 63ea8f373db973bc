"""Keep vectors by text hash and identity: wanted, in flight, ready or failed, and the embedding cache.

    wanted --lease--> leased --store--> ready          active = 1: some chunk needs it
       ^                |                 |             active = 0: it stays as cache
       +---- later -----+---- refused --> failed (due: when to try again)

A text whose last chunk is removed while its request is in flight stays leased with active = 0. A batch may
return its vector a day later, and a chunk that needs the text again until then must not pay for it twice.

Wanted texts are sent by `priority`: those of live edits first, then those of jobs (`shared.index.jobs`), the
older job first. Those of a paused job wait for it, and those of a cancelled one stay where they are, so that
the index still knows what it lacks, until another job takes them up.

All functions but `change_priority` run inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from sqlite3 import Connection

import msgspec
from msgspec.structs import replace

from memline.shared.index import token_rows
from memline.shared.index.driver import in_slices, scalar
from memline.shared.index.identities import IdentityRow
from memline.shared.index.rows import VectorRow

#: Values of `priority`; the smaller one is sent first, CANCELLED and PAUSED are not sent.
LIVE_EDIT, BACKFILL, CANCELLED, PAUSED = 0, 1, 2, 3

#: Times a text whose answers are broken is sent before it is marked failed.
TEXT_ATTEMPTS = 3

#: Seconds until a text whose answer was broken is sent again; doubled by each further time.
FIRST_RETRY_S = 2.0

#: Seconds until a failed text is tried again by a long-lived process; `index` tries at once.
FAILED_RETRY_S = 3_600.0

#: Seconds that vectors which came from elsewhere are kept at least, however many: until then their files have
#: been read. A cached vector is "used" at this time in the future.
IMPORTED_KEEP_S = 86_400.0

#: Rows a transaction of background work changes at most, so that a live edit never waits long.
SLICE_ROWS = 200


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the active vectors of an identity, by state."""

    wanted: int = 0
    leased: int = 0
    ready: int = 0
    #: Without those that a person left alone.
    failed: int = 0
    #: Wanted by a job that was cancelled, or is paused; not counted as wanted.
    cancelled: int = 0
    paused: int = 0

    @property
    def in_progress(self) -> int:
        """Vectors that will be stored without any further request by a user."""
        return self.wanted + self.leased

    @property
    def pending(self) -> int:
        """Vectors that are not there and have not failed: how far the index is behind."""
        return self.in_progress + self.cancelled + self.paused


# By every identity, which the index of texts begins with: without that all vectors are read, 90 ms of CPU for
# each text that left 100,000 of 384 dimensions.
OF_TEXT = "identity_id IN (SELECT id FROM identities) AND text_hash = ?"


def want(
    connection: Connection,
    identity: IdentityRow,
    texts: Mapping[bytes, int],
    *,
    priority: int,
    now: float,
    job: int = 0,
) -> int:
    """Make sure every text hash (with its token estimate) has an active row; returns how many were cached.

    A text never gets a later priority than it has. `job`: the id of the job that wants them, 0 for none.
    """
    inserted = connection.executemany(
        "INSERT INTO vectors (identity_id, text_hash, state, priority, job, tokens)"
        " VALUES (?, ?, 'wanted', ?, ?, ?) ON CONFLICT DO NOTHING",
        ((identity.id, digest, priority, job, tokens) for digest, tokens in texts.items()),
    ).rowcount
    if inserted == len(texts):
        return 0
    cached = 0
    for digest in texts:
        row_id, state, is_active, old_priority = connection.execute(
            "SELECT id, state, active, priority FROM vectors WHERE identity_id = ? AND text_hash = ?",
            (identity.id, digest),
        ).fetchone()
        if not is_active and state == "leased":
            connection.execute("UPDATE vectors SET active = 1 WHERE id = ?", (row_id,))
        if state == "ready":
            cached += 1
            if not is_active:
                connection.execute("UPDATE vectors SET active = 1, used_at = ? WHERE id = ?", (now, row_id))
        elif priority < old_priority:
            # A live edit needs a text of a job, or a job one that is held back: it moves to the front.
            update = "UPDATE vectors SET priority = ?, job = ? WHERE id = ?"
            connection.execute(update, (priority, job, row_id))
    return cached


def release(connection: Connection, orphans: Sequence[bytes], now: float) -> None:
    """Turn the vectors of texts that no chunk needs any more into cache; drop what was never embedded."""
    for digest in orphans:
        connection.execute(
            f"UPDATE vectors SET active = 0, used_at = ? WHERE {OF_TEXT} AND state = 'ready' AND active = 1",
            (now, digest),
        )
        # What is in flight is stored as cache when it arrives.
        connection.execute(f"UPDATE vectors SET active = 0 WHERE {OF_TEXT} AND state = 'leased'", (digest,))
        connection.execute(
            f"DELETE FROM vectors WHERE {OF_TEXT} AND state NOT IN ('ready', 'leased')", (digest,)
        )


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What `store` changed."""

    #: Vectors that were new.
    count: int
    #: (texts, tokens) of those that a job wanted, by its id.
    by_job: Mapping[int, tuple[int, int]]


def store(connection: Connection, identity: IdentityRow, rows: Iterable[VectorRow], now: float) -> Stored:
    """Store vectors by text hash. Safe twice and late: a ready row stays as it is.

    The caller has checked the dimensions.
    """
    stored = 0
    by_job: dict[int, tuple[int, int]] = {}
    tokens: list[tuple[int, bytes]] = []
    for row in rows:
        updated = connection.execute(
            "UPDATE vectors SET state = 'ready', embedding = ?, error = '', lease = NULL, attempts = 0,"
            " used_at = ? WHERE identity_id = ? AND text_hash = ? AND state <> 'ready'"
            " RETURNING id, job, tokens",
            (row.vector, now, identity.id, row.hash),
        ).fetchone()
        if updated:
            stored += 1
            row_id, job, size = updated
            if job:
                texts_before, tokens_before = by_job.get(job, (0, 0))
                by_job[job] = texts_before + 1, tokens_before + size
            if row.tokens:
                tokens.append((row_id, row.tokens))
            continue
        # Its chunk was removed meanwhile; it is paid for, so it is kept as cache.
        cached = connection.execute(
            "INSERT INTO vectors (identity_id, text_hash, state, active, used_at, embedding)"
            " VALUES (?, ?, 'ready', 0, ?, ?)"
            " ON CONFLICT (identity_id, text_hash) DO NOTHING RETURNING id",
            (identity.id, row.hash, now, row.vector),
        ).fetchone()
        if cached and row.tokens:
            tokens.append((cached[0], row.tokens))
    token_rows.store(connection, identity.id, tokens)
    return Stored(count=stored, by_job=by_job)


class LeasedTexts(msgspec.Struct, frozen=True, kw_only=True):
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
        "attempts = attempts + 1, state = iif(attempts + 1 >= ?, 'failed', 'wanted'),"
        " due = ? + iif(attempts + 1 >= ?, ?, ? * (1 << attempts))"
    )
    values = (TEXT_ATTEMPTS, now, TEXT_ATTEMPTS, FAILED_RETRY_S, FIRST_RETRY_S)
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


_FAILED = "identity_id = ? AND state = 'failed' AND state <> 'ready'"

_RETRY = "UPDATE vectors SET state = 'wanted', due = 0, attempts = 0"


def retry_failed(connection: Connection, identity_id: int, *, due_before: float = inf) -> int:
    """Make failed texts wanted again that are due before a time; without one all of them."""
    return int(
        connection.execute(f"{_RETRY} WHERE {_FAILED} AND due < ?", (identity_id, due_before)).rowcount
    )


def backlog(connection: Connection, identity_id: int) -> Backlog:
    """Count the active vectors of an identity by state."""
    rows = connection.execute(
        "SELECT state, count(*) FROM vectors WHERE identity_id = ? AND active = 1 GROUP BY state",
        (identity_id,),
    )
    counts: dict[str, int] = dict(rows.fetchall())
    if wanted := counts.get("wanted"):
        cancelled = count_by_priority(connection, identity_id, CANCELLED)
        paused = count_by_priority(connection, identity_id, PAUSED)
        counts.update(wanted=wanted - cancelled - paused, cancelled=cancelled, paused=paused)
    return Backlog(**counts)


def next_tokens(connection: Connection, identity_id: int) -> int | None:
    """Return the tokens of a text that waits to be sent; None when none does."""
    query = (
        "SELECT tokens FROM vectors WHERE identity_id = ? AND state = 'wanted' AND state <> 'ready'"
        f" AND priority < {CANCELLED} ORDER BY priority, job, id LIMIT 1"
    )
    tokens: int | None = scalar(connection, query, identity_id)
    return tokens


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
            f" FROM vectors WHERE {_FAILED} ORDER BY id LIMIT ?",
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
    connection: Connection,
    identity: IdentityRow,
    rows: Sequence[VectorRow],
    now: float,
    *,
    projection: bytes = b"",
) -> int:
    """Store vectors that were made elsewhere; returns how many this index did not have.

    The caller has checked the dimensions. What no chunk needs yet is cached, and kept for a day at least.
    `projection`: what those of their tokens are reduced with.
    """
    is_ready = "SELECT 1 FROM vectors WHERE identity_id = ? AND text_hash = ? AND state = 'ready'"
    new = [row for row in rows if not scalar(connection, is_ready, identity.id, row.hash)]
    bare = [replace(row, tokens=b"") for row in new]
    store(connection, identity, bare, now + IMPORTED_KEEP_S)
    with_tokens = [(row.hash, row.tokens) for row in rows if row.tokens]
    token_rows.take_in(connection, identity.id, with_tokens, projection)
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


def change_priority(connection: Connection, old: int, new: int, *, job: int = 0, new_job: int = 0) -> int:
    """Change the priority of what has no vector yet, in slices; returns how many of it were wanted.

    `job`: only the texts of this job. `new_job`: the job they belong to from now on. Requests in flight are
    stored as usual; of those, only a text that would have to be sent again is concerned.
    """
    changed = 0
    for state in ("leased", "failed", "wanted"):
        statement = (
            "UPDATE vectors SET priority = ?, job = iif(?, ?, job) WHERE id IN (SELECT id FROM vectors"
            " WHERE state = ? AND state <> 'ready' AND identity_id IN (SELECT id FROM identities)"
            f" AND priority = ?{' AND job = ?' * bool(job)} LIMIT ?)"
        )
        only = (job,) * bool(job)
        changed = in_slices(connection, statement, new, new_job, new_job, state, old, *only, SLICE_ROWS)
    return changed
