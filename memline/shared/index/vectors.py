"""Keep vectors by text hash and identity: wanted, in flight, ready or failed, and the embedding cache.

    wanted --lease--> leased --store--> ready          active = 1: some chunk needs it
       ^                |                 |             active = 0: it stays as cache
       +---- later -----+---- refused --> failed (due: when to try again)

A text whose last chunk is removed while its request is in flight stays leased with active = 0: a chunk that
needs it again, until a batch returns it a day later, must not pay for it twice.

Wanted texts of live edits (job 0) go out first, then those of jobs, the older job first. Texts of a job that
is paused or was cancelled stay wanted and are not sent: the row of the job alone says so.

All functions run inside the caller's transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from sqlite3 import Connection

import msgspec

from memline.shared.index import bits, token_rows
from memline.shared.index.driver import json_ids, scalar
from memline.shared.index.identities import IdentityRow
from memline.shared.index.rows import VectorRow

#: In the place of a job, what nothing waited for.
UNWANTED = -1

#: Times a text whose answers are broken is sent before it is marked failed.
TEXT_ATTEMPTS = 3

#: Seconds until a text whose answer was broken is sent again; doubled by each further time.
FIRST_RETRY_S = 2.0

#: Seconds until a failed text is tried again by a long-lived process; `index` tries at once.
FAILED_RETRY_S = 3_600.0

#: Seconds that vectors which came from elsewhere are kept at least: until then their files have been read.
#: They are "used" at this time in the future.
IMPORTED_KEEP_S = 86_400.0

#: Rows of another index that are taken over in a transaction, and cached ones that are removed in one: a live
#: edit waits for it.
SLICE_ROWS, PRUNED_ROWS = 200, 2_000

# By every identity, which the index of texts begins with: without that all vectors are read, 90 ms of CPU for
# each text that left 100,000 of 384 dimensions.
_OF_TEXT = "identity_id IN (SELECT id FROM identities) AND text_hash = ?"
_UNNEEDED = "identity_id IN (SELECT id FROM identities) AND active = 0"
_CACHED = f"{_UNNEEDED} AND state = 'ready'"

#: To be followed by a state: answered by the index of states alone.
_OF_STATE = "identity_id = ? AND active = 1 AND state"

#: Jobs whose texts are not sent.
_HELD = "SELECT id FROM jobs WHERE state IN ('paused', 'cancelled')"


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the active vectors of an identity, by state."""

    wanted: int = 0
    leased: int = 0
    ready: int = 0
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


def want(
    connection: Connection, identity: IdentityRow, texts: Mapping[bytes, int], *, job: int = 0, now: float
) -> int:
    """Make sure every text hash (with its token estimate) has an active row; returns how many were cached.

    `job`: the id of the job that wants them, 0 for a live edit. A text that waits moves to a live edit, and
    from a job that is held back to one that is not.
    """
    inserted = connection.executemany(
        "INSERT INTO vectors (identity_id, text_hash, state, job, tokens)"
        " VALUES (?, ?, 'wanted', ?, ?) ON CONFLICT DO NOTHING",
        ((identity.id, digest, job, tokens) for digest, tokens in texts.items()),
    ).rowcount
    cached = 0
    for digest in texts if inserted < len(texts) else ():
        row_id, state, is_active, old_job = connection.execute(
            "SELECT id, state, active, job FROM vectors WHERE identity_id = ? AND text_hash = ?",
            (identity.id, digest),
        ).fetchone()
        cached += state == "ready"
        if not is_active:
            connection.execute("UPDATE vectors SET active = 1, used_at = ? WHERE id = ?", (now, row_id))
        if state != "ready" and old_job > 0 and old_job != job:
            connection.execute(
                "UPDATE vectors SET job = ?1 WHERE id = ?2"
                f" AND (?1 = 0 OR (job IN ({_HELD}) AND ?1 NOT IN ({_HELD})))",
                (job, row_id),
            )
    return cached


def release(connection: Connection, orphans: Sequence[bytes], now: float) -> None:
    """Turn the vectors of texts that no chunk needs any more into cache, also what is in flight."""
    change = f"UPDATE vectors SET active = 0, used_at = ? WHERE {_OF_TEXT} AND active = 1"
    connection.executemany(change, ((now, digest) for digest in orphans))


def store(
    connection: Connection, identity: IdentityRow, rows: Iterable[VectorRow], now: float
) -> Counter[int]:
    """Store vectors by text hash. Safe twice and late: a ready row stays as it is.

    The caller has checked the dimensions. Counts those that were new by the id of the job that waited for
    them: 0 for live edits, UNWANTED for those that nothing waited for.
    """
    by_hash = {row.hash: row for row in rows}
    known = connection.execute(
        "SELECT text_hash, id, job, state FROM vectors WHERE identity_id = ?"
        f" AND text_hash IN ({', '.join('?' * len(by_hash))})",
        (identity.id, *by_hash),
    ).fetchall()
    new = [(row_id, by_hash[digest]) for digest, row_id, _, state in known if state != "ready"]
    done = Counter[int](job for _, _, job, state in known if state != "ready")
    connection.executemany(
        "UPDATE vectors SET state = 'ready', embedding = ?, error = '', lease = NULL, attempts = 0,"
        " used_at = ? WHERE id = ?",
        ((row.vector, now, row_id) for row_id, row in new),
    )
    for digest in by_hash.keys() - {digest for digest, *_ in known}:
        # Its chunk was removed meanwhile; it is paid for, so it is kept as cache.
        row_id = scalar(connection, _STORE_NEW, identity.id, digest, now, by_hash[digest].vector)
        new.append((row_id, by_hash[digest]))
        done[UNWANTED] += 1
    token_rows.store(connection, identity.id, [(row_id, row.tokens) for row_id, row in new if row.tokens])
    bits.store(connection, identity.id, [(row_id, row.vector) for row_id, row in new])
    return done


_STORE_NEW = (
    "INSERT INTO vectors (identity_id, text_hash, state, active, used_at, embedding)"
    " VALUES (?, ?, 'ready', 0, ?, ?) RETURNING id"
)


def take_back(
    connection: Connection,
    identity_id: int,
    lease: str,
    hashes: Iterable[bytes],
    error: str,
    now: float,
    *,
    attempts: int,
) -> bool:
    """Take texts back that returned without a vector, those that their lease still holds; say whether any.

    They are wanted again, after a backoff if this counts as `attempts` of them, or have failed. From the
    first attempt on they go in requests, where what is wrong shows soonest.
    """
    cursor = connection.executemany(
        "UPDATE vectors SET lease = NULL, error = ?1, attempts = attempts + ?2,"
        f" state = iif(attempts + ?2 >= {TEXT_ATTEMPTS}, 'failed', 'wanted'),"
        f" due = CASE WHEN attempts + ?2 >= {TEXT_ATTEMPTS} THEN ?3 + {FAILED_RETRY_S}"
        f" WHEN ?2 THEN ?3 + {FIRST_RETRY_S} * (1 << attempts) ELSE 0.0 END"
        " WHERE identity_id = ?4 AND text_hash = ?5 AND lease = ?6",
        ((error, attempts, now, identity_id, digest, lease) for digest in hashes),
    )
    return cursor.rowcount > 0


def retry_failed(connection: Connection, identity_id: int, *, due_before: float = inf) -> None:
    """Make failed texts wanted again that are due before a time; without one all of them."""
    # A job that ended long ago has no row any more.
    job = "job = iif(job IN (SELECT id FROM jobs), job, 0)"
    change = f"UPDATE vectors SET state = 'wanted', due = 0, attempts = 0, {job}"
    connection.execute(f"{change} WHERE {_OF_STATE} = 'failed' AND due < ?", (identity_id, due_before))


def _sending_jobs(connection: Connection) -> list[int]:
    """Return the jobs whose wanted texts may be sent, the oldest first; before them 0, live edits."""
    rows = connection.execute(f"SELECT id FROM jobs WHERE id NOT IN ({_HELD}) ORDER BY id")
    return [0, *(job for (job,) in rows)]


def next_texts(
    connection: Connection, identity_id: int, limit: int, now: float, *, for_batch: bool = False
) -> list[tuple[int, int]]:
    """List (id, tokens) of the texts to send next, of each job those first that were never tried.

    `for_batch`: without the texts of jobs that were never tried, since they wait for a batch.
    """
    rows: list[tuple[int, int]] = []
    for job in _sending_jobs(connection):
        rows += connection.execute(
            f"SELECT id, tokens FROM vectors WHERE {_OF_STATE} = 'wanted' AND job = ? AND attempts >= ?"
            " AND due <= ? ORDER BY attempts, id LIMIT ?",
            (identity_id, job, int(for_batch and job > 0), now, limit - len(rows)),
        )
        if len(rows) >= limit:
            break
    return rows


def texts_for_batch(connection: Connection, identity_id: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield (id, tokens) of the texts of jobs that nothing has failed to embed."""
    query = (
        f"SELECT id, tokens FROM vectors WHERE {_OF_STATE} = 'wanted' AND attempts = 0"
        " AND job IN (SELECT value FROM json_each(?)) LIMIT ?"
    )
    jobs = _sending_jobs(connection)[1:]
    return connection.execute(query, (identity_id, json_ids(jobs), limit))


def lease_texts(connection: Connection, token: str, ids: Sequence[int]) -> int:
    """Put texts that are wanted under a lease; returns how many."""
    change = (
        "UPDATE vectors SET state = 'leased', lease = ? WHERE id IN (SELECT value FROM json_each(?))"
        " AND +state = 'wanted'"
    )
    return int(connection.execute(change, (token, json_ids(ids))).rowcount)


def backlog(connection: Connection, identity_id: int) -> Backlog:
    """Count the active vectors of an identity by state."""
    query = "SELECT state, count(*) FROM vectors WHERE identity_id = ? AND active = 1 GROUP BY state"
    counts: dict[str, int] = dict(connection.execute(query, (identity_id,)).fetchall())
    if counts.get("wanted"):
        # CROSS JOIN: the few jobs first.
        held = connection.execute(
            "SELECT jobs.state, count(*) FROM jobs CROSS JOIN vectors ON vectors.job = jobs.id"
            f" WHERE jobs.id IN ({_HELD}) AND vectors.identity_id = ? AND active = 1"
            " AND vectors.state = 'wanted' GROUP BY jobs.state",
            (identity_id,),
        )
        for state, count in held.fetchall():
            counts[state] = count
            counts["wanted"] -= count
    return Backlog(**counts)


def is_pending(connection: Connection, identity_id: int) -> bool:
    """Tell whether any vector of an identity is wanted or in flight."""
    query = f"SELECT 1 FROM vectors WHERE {_OF_STATE} IN ('wanted', 'leased') LIMIT 1"
    return bool(scalar(connection, query, identity_id))


def count_pending(connection: Connection, identity_id: int) -> int:
    """Count the vectors of an identity that are wanted or in flight: `Backlog.pending`, for each question."""
    return _count(connection, f"{_OF_STATE} IN ('wanted', 'leased')", identity_id)


def count_cached(connection: Connection) -> int:
    """Count the ready vectors that no chunk needs: the cache proper."""
    return _count(connection, _CACHED)


def count_ready(connection: Connection) -> int:
    """Count all ready vectors, active or cached: what `status` calls cache entries."""
    return _count(connection, "state = 'ready'")


def _count(connection: Connection, condition: str, *values: object) -> int:
    return int(scalar(connection, f"SELECT count(*) FROM vectors WHERE {condition}", *values))


def next_due(connection: Connection, identity_id: int) -> float:
    """Return when the next wanted vector may be sent (seconds since the epoch); 0 when none is wanted."""
    query = f"SELECT min(due) FROM vectors WHERE {_OF_STATE} = 'wanted' AND job NOT IN ({_HELD})"
    return scalar(connection, query, identity_id) or 0.0


def failures(connection: Connection, identity_id: int, limit: int) -> list[tuple[str, str, str]]:
    """List (text hash in hex, error, a path with the text) of failed texts."""
    return connection.execute(
        "SELECT lower(hex(text_hash)), error,"
        " (SELECT files.path FROM chunks JOIN files ON files.id = chunks.file_id"
        "  WHERE chunks.text_hash = vectors.text_hash LIMIT 1)"
        f" FROM vectors WHERE {_OF_STATE} = 'failed' ORDER BY id LIMIT ?",
        (identity_id, limit),
    ).fetchall()


def prune_cache(connection: Connection, keep: int, now: float) -> None:
    """Remove texts without a vector that no chunk needs, and some of the cached vectors above `keep`.

    The least recently used go first; those that were imported within `IMPORTED_KEEP_S` are not counted.
    """
    connection.execute(f"DELETE FROM vectors WHERE {_UNNEEDED} AND state IN ('wanted', 'failed')")
    connection.execute(
        "DELETE FROM vectors WHERE id IN (SELECT id FROM vectors WHERE active = 0 AND state = 'ready'"
        " AND used_at <= ?1 ORDER BY used_at, id LIMIT min(max("
        f"(SELECT count(*) FROM vectors WHERE {_CACHED} AND used_at <= ?1) - ?2, 0), {PRUNED_ROWS}))",
        (now, keep),
    )
