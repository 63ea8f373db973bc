"""Keep jobs: reindexes, first imports, model changes and backfills, as rows that outlive every process.

    running ◄──► paused        `change`
       ▲ │         │
       │ ├─────────┴──► cancelled    its texts stay known as missing, until `take_up` lets it go on
       │ └──► done                   no file is left to be read, and no text wanted or in flight
       └── another file or text of it came

A row of `job_files` goes when the ledger has the file, however it came. Texts carry the id of their job, and
who sends them asks for its state, so one statement pauses a million. All functions but `finish_settled` run
inside the caller's transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from sqlite3 import Connection

import msgspec

from memline.shared.index.driver import scalar, select, transaction

#: Values of `kind`.
IMPORT, REINDEX, MODEL, BACKFILL = "import", "reindex", "model", "backfill"

#: Values of `state`.
STATES = RUNNING, PAUSED, CANCELLED, DONE = "running", "paused", "cancelled", "done"

#: Ended jobs that are kept to be shown.
KEPT = 100


class Job(msgspec.Struct, frozen=True):
    """The row of a job."""

    id: int
    token: str
    kind: str
    what: str
    state: str
    force: int
    created_ns: int
    ended_at: float
    #: Files that it was made for, and vectors that were stored for it.
    files: int
    texts_done: int
    identity_id: int | None


class Left(msgspec.Struct, frozen=True):
    """What a job has not done yet."""

    files: int = 0
    #: Texts that are wanted or in flight.
    texts: int = 0
    failed: int = 0


#: To be followed by a state and a job: then the index of states alone answers, and there may be a million.
_TEXTS = (
    "vectors WHERE vectors.identity_id IN (SELECT identities.id FROM identities)"
    " AND active = 1 AND vectors.state"
)
_UNSETTLED = f"{_TEXTS} IN ('wanted', 'leased') AND vectors.job = jobs.id"
_HAS_TEXTS = f"EXISTS (SELECT 1 FROM {_UNSETTLED})"
_HAS_FILES = "EXISTS (SELECT 1 FROM job_files WHERE job = jobs.id)"
_SETTLED = f"jobs.state = 'running' AND NOT {_HAS_FILES} AND NOT {_HAS_TEXTS}"
_LEFT = (
    "SELECT id, (SELECT count(*) FROM job_files WHERE job = jobs.id),"
    f" (SELECT count(*) FROM {_UNSETTLED}),"
    f" (SELECT count(*) FROM {_TEXTS} = 'failed' AND vectors.job = jobs.id) FROM jobs"
)


def create(
    connection: Connection,
    kind: str,
    *,
    now_ns: int,
    what: str = "",
    files: Iterable[tuple[str, int]] = (),
    force: bool = False,
    identity_id: int | None = None,
) -> Job:
    """Make a job that has to read these files (ledger path, size)."""
    listed = dict(files)
    row = connection.execute(
        "INSERT INTO jobs (token, kind, what, force, created_ns, files, identity_id, state)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?, 'running') RETURNING {', '.join(Job.__struct_fields__)}",
        (os.urandom(4).hex(), kind, what, force, now_ns, len(listed), identity_id),
    ).fetchone()
    job = Job(*row)
    connection.executemany(
        "INSERT INTO job_files (job, path, size) VALUES (?, ?, ?)",
        ((job.id, path, size) for path, size in listed.items()),
    )
    return job


def listed(connection: Connection) -> list[Job]:
    """Return the jobs that are open and the last ones that ended, the newest first."""
    return select(connection, Job, "jobs", "ORDER BY id DESC")


def open_jobs(connection: Connection) -> list[Job]:
    """Return the jobs that are running or paused, the oldest first."""
    return select(connection, Job, "jobs", "WHERE ended_at = 0 ORDER BY id")


def by_token(connection: Connection, token: str) -> Job | None:
    """Return the job of this token."""
    return next(iter(select(connection, Job, "jobs", "WHERE token = ?", token)), None)


def left(connection: Connection) -> dict[int, Left]:
    """Return what each job has not done yet, by its id."""
    return {job: Left(*counts) for job, *counts in connection.execute(_LEFT)}


def waiting_files(connection: Connection) -> dict[str, int]:
    """Return the files that open jobs have not read: path -> when the newest of them was asked for (ns)."""
    rows = connection.execute(
        "SELECT path, max(created_ns) FROM job_files JOIN jobs ON jobs.id = job_files.job GROUP BY path"
    )
    return dict(rows.fetchall())


def count_waiting(connection: Connection, *, state: str = RUNNING) -> int:
    """Count the files that jobs in a state have not read."""
    query = "SELECT count(*) FROM job_files WHERE job IN (SELECT id FROM jobs WHERE state = ?)"
    return int(scalar(connection, query, state))


def next_to_read(connection: Connection) -> Job | None:
    """Return the oldest running job with files to read; None when there is none."""
    condition = f"WHERE state = 'running' AND {_HAS_FILES} ORDER BY id LIMIT 1"
    return next(iter(select(connection, Job, "jobs", condition)), None)


def files_of(connection: Connection, job_id: int, count: int = -1) -> list[tuple[str, int]]:
    """List (ledger path, size) of the files that a job has not read yet, by default of all of them."""
    query = "SELECT path, size FROM job_files WHERE job = ? ORDER BY path LIMIT ?"
    return connection.execute(query, (job_id, count)).fetchall()


def files_arrived(connection: Connection, observed: Mapping[str, int]) -> bool:
    """Note that files were read to their end: path -> when (ns); tells whether a job waited for one."""
    query = "DELETE FROM job_files WHERE path = ? AND job IN (SELECT id FROM jobs WHERE created_ns <= ?)"
    return connection.executemany(query, observed.items()).rowcount > 0


def add_done(connection: Connection, done: Mapping[int, int]) -> None:
    """Count vectors that were stored, by job id."""
    query = "UPDATE jobs SET texts_done = texts_done + ? WHERE id = ?"
    connection.executemany(query, [(texts, job) for job, texts in done.items()])


def for_model(connection: Connection, what: str, identity_id: int, *, kind: str, now: float) -> Job:
    """Return the open job that embeds all texts with an identity; it is made when there is none."""
    condition = "WHERE ended_at = 0 AND kind = ? AND what = ? AND identity_id = ? ORDER BY id DESC"
    if same := select(connection, Job, "jobs", condition, kind, what, identity_id):
        return same[0]
    return create(connection, kind, now_ns=int(now * 1e9), what=what, identity_id=identity_id)


def reopen(connection: Connection, job_id: int) -> None:
    """Let a job that seemed done go on: more texts of it came."""
    change = "UPDATE jobs SET state = 'running', ended_at = 0 WHERE id = ? AND state = 'done'"
    connection.execute(change, (job_id,))


def finish_settled(connection: Connection, now: float) -> None:
    """End the running jobs that have nothing left to read, to send or to wait for."""
    if scalar(connection, f"SELECT 1 FROM jobs WHERE {_SETTLED}") is None:
        return
    with transaction(connection):
        connection.execute(f"UPDATE jobs SET state = 'done', ended_at = ? WHERE {_SETTLED}", (now,))
        # The oldest that ended, but for those whose texts are still wanted.
        connection.execute(
            f"DELETE FROM jobs WHERE ended_at > 0 AND NOT {_HAS_TEXTS} AND id NOT IN"
            " (SELECT id FROM jobs WHERE ended_at > 0 ORDER BY ended_at DESC, id DESC LIMIT ?)",
            (KEPT,),
        )


def change(connection: Connection, job: Job, state: str) -> bool:
    """Pause a running job, or let a paused one run; False when it is neither.

    Requests in flight end as usual, and a live edit takes its texts out of a paused job.
    """
    before = {PAUSED: RUNNING, RUNNING: PAUSED}[state]
    query = "UPDATE jobs SET state = ? WHERE id = ? AND state = ?"
    return bool(connection.execute(query, (state, job.id, before)).rowcount)


def cancel(connection: Connection, job: Job, now: float) -> tuple[int, int] | None:
    """End an open job; returns the counts of (files, texts) given up, None when it has ended already.

    Its texts stay known as missing; those at the provider are still stored.
    """
    ended = connection.execute(
        "UPDATE jobs SET state = 'cancelled', ended_at = ?,"
        " files = files - (SELECT count(*) FROM job_files WHERE job = jobs.id) WHERE id = ? AND ended_at = 0",
        (now, job.id),
    )
    if not ended.rowcount:
        return None
    files = connection.execute("DELETE FROM job_files WHERE job = ?", (job.id,)).rowcount
    return files, scalar(connection, f"SELECT count(*) FROM {_TEXTS} = 'wanted' AND job = ?", job.id)


def take_up(connection: Connection) -> None:
    """Let cancelled jobs go on whose texts are missing."""
    connection.execute(
        f"UPDATE jobs SET state = 'running', ended_at = 0 WHERE state = 'cancelled' AND {_HAS_TEXTS}"
    )
