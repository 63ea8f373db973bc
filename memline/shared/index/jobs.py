"""Keep jobs: reindexes, first imports, model changes and backfills, as rows that outlive every process.

    running ◄──► paused        `pause`, `resume`
       ▲ │         │
       │ ├─────────┴──► cancelled    its texts stay known as missing, until `take_up` lets it go on
       │ └──► done                   no file is left to be read, and no text wanted or in flight
       └── another file or text of it came

A job begins with the files it has to read, a row of `job_files` each; the row goes when the ledger has the
file, however it came. Its texts carry its id (`vectors.job`), so what is left is counted where it is kept.
Who sends texts asks for the state of their job, so one statement pauses a job of a million texts.

All functions but `finish_settled` run inside the caller's transaction.
"""

from __future__ import annotations

import os
import pwd
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from sqlite3 import Connection
from typing import Any

import msgspec

from memline.shared.index import meta
from memline.shared.index.driver import scalar, transaction

#: Values of `kind`.
IMPORT, REINDEX, MODEL, BACKFILL = "import", "reindex", "model", "backfill"

#: Values of `state`.
RUNNING, PAUSED, CANCELLED, DONE = "running", "paused", "cancelled", "done"

#: Ended jobs that are kept to be shown.
KEPT = 100


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a job."""

    id: int
    token: str
    kind: str
    what: str
    asked_by: str
    state: str
    force: int
    created_ns: int
    ended_at: float
    files: int
    files_done: int
    texts_done: int
    tokens_done: int
    batch_tokens_done: int
    identity_id: int | None


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has not done yet."""

    files: int = 0
    #: Texts that are wanted or in flight, and their estimated tokens.
    texts: int = 0
    tokens: int = 0
    failed: int = 0


#: The texts that jobs wait for, by the index of states alone: there may be a million.
_UNSETTLED = (
    "vectors.identity_id IN (SELECT identities.id FROM identities) AND active = 1"
    " AND vectors.state IN ('wanted', 'leased')"
)


def asker() -> str:
    """Return user@host of this process: who asks for a job on a command line."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        # No such module, or a container whose user has no name.
        user = str(os.getuid()) if hasattr(os, "getuid") else "?"
    return f"{user}@{os.uname().nodename}"


def create(
    connection: Connection,
    kind: str,
    *,
    by: str,
    now_ns: int,
    what: str = "",
    files: Iterable[tuple[str, int]] = (),
    force: bool = False,
) -> Job:
    """Make a job that has to read these files (ledger path, size)."""
    listed = dict(files)
    job_id = scalar(
        connection,
        "INSERT INTO jobs (token, kind, what, asked_by, state, force, created_ns, files)"
        " VALUES (?, ?, ?, ?, 'running', ?, ?, ?) RETURNING id",
        *(os.urandom(4).hex(), kind, what, by, int(force), now_ns, len(listed)),
    )
    connection.executemany(
        "INSERT INTO job_files (job, path, size) VALUES (?, ?, ?)",
        ((job_id, path, size) for path, size in listed.items()),
    )
    return _rows(connection, "WHERE id = ?", job_id)[0]


def by_token(connection: Connection, token: str) -> Job | None:
    """Return the job of this token."""
    return next(iter(_rows(connection, "WHERE token = ?", token)), None)


def open_jobs(connection: Connection) -> list[Job]:
    """Return the jobs that are running or paused, the oldest first."""
    return _rows(connection, "WHERE ended_at = 0 ORDER BY id")


def count_by_state(connection: Connection) -> dict[str, int]:
    """Count the jobs of each state, those that ended as far as they are kept."""
    counts = dict.fromkeys((RUNNING, PAUSED, CANCELLED, DONE), 0)
    return counts | dict(connection.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())


def latest(connection: Connection, limit: int) -> list[Job]:
    """Return the last jobs, the newest first."""
    return _rows(connection, "ORDER BY id DESC LIMIT ?", limit)


def find(connection: Connection, name: str) -> list[Job]:
    """Return the jobs whose token begins with `name`."""
    return _rows(connection, "WHERE substr(token, 1, length(?1)) = ?1", name) if name else []


def left(connection: Connection) -> dict[int, Left]:
    """Return what each job has not done yet, by its id; jobs with nothing left are not in it."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for job, files in connection.execute("SELECT job, count(*) FROM job_files GROUP BY job"):
        counts[job]["files"] = files
    rows = connection.execute(
        "SELECT job, state, count(*), sum(tokens) FROM vectors"
        " WHERE identity_id IN (SELECT id FROM identities) AND active = 1"
        " AND state IN ('wanted', 'leased', 'failed') AND job > 0"
        # In the order of the index, or a million rows are sorted.
        " GROUP BY identity_id, active, state, job"
    )
    for job, state, texts, tokens in rows:
        counts[job].update({"failed": texts} if state == "failed" else {"texts": texts, "tokens": tokens})
    return {job: Left(**of_job) for job, of_job in counts.items()}


def waiting_files(connection: Connection) -> dict[str, int]:
    """Return the files that open jobs have not read: path -> when the newest of them was asked for (ns)."""
    rows = connection.execute(
        "SELECT path, max(created_ns) FROM job_files JOIN jobs ON jobs.id = job_files.job GROUP BY path"
    )
    return dict(rows.fetchall())


def count_waiting(connection: Connection, *, state: str = RUNNING) -> int:
    """Count the files that jobs in a state have not read."""
    query = (
        "SELECT count(*) FROM job_files WHERE job IN (SELECT id FROM jobs WHERE ended_at = 0 AND state = ?)"
    )
    return int(scalar(connection, query, state))


def next_to_read(connection: Connection) -> Job | None:
    """Return the oldest running job with files to read; None when there is none."""
    condition = "state = 'running' AND EXISTS (SELECT 1 FROM job_files WHERE job = jobs.id)"
    return next(iter(_rows(connection, f"WHERE ended_at = 0 AND {condition} ORDER BY id LIMIT 1")), None)


def files_of(connection: Connection, job_id: int) -> list[tuple[str, int]]:
    """List (ledger path, size) of the files that a job has not read yet."""
    rows = connection.execute("SELECT path, size FROM job_files WHERE job = ? ORDER BY path", (job_id,))
    return rows.fetchall()


def files_arrived(connection: Connection, observed: Mapping[str, int], now: float) -> int:
    """Note that files were read to their end: path -> when (ns); returns how many a job was waiting for."""
    arrived, by_job = 0, dict[int, int]()
    for path, observed_ns in observed.items():
        done = connection.execute(
            "DELETE FROM job_files WHERE path = ? AND job IN"
            " (SELECT id FROM jobs WHERE ended_at = 0 AND created_ns <= ?) RETURNING job",
            (path, observed_ns),
        ).fetchall()
        arrived += bool(done)
        for (job_id,) in done:
            by_job[job_id] = by_job.get(job_id, 0) + 1
    if arrived:
        query = "UPDATE jobs SET files_done = files_done + ? WHERE id = ?"
        connection.executemany(query, [(count, job_id) for job_id, count in by_job.items()])
        meta.count_recent(connection, arrived, now, meta.READ_RECENTLY)
    return arrived


def id_of(connection: Connection, token: str) -> int:
    """Return the id of a job; 0, that of live edits, for an empty token, and for one of another index."""
    return scalar(connection, "SELECT id FROM jobs WHERE token = ?", token) or 0 if token else 0


def add_done(
    connection: Connection,
    done: Mapping[int, tuple[int, int]],
    identity_id: int,
    *,
    by_batch: bool,
) -> None:
    """Count vectors that were stored: (texts, tokens) by job id."""
    connection.executemany(
        "UPDATE jobs SET texts_done = texts_done + ?, tokens_done = tokens_done + ?,"
        " batch_tokens_done = batch_tokens_done + ?, identity_id = ? WHERE id = ?",
        (
            (texts, tokens, tokens if by_batch else 0, identity_id, job)
            for job, (texts, tokens) in done.items()
        ),
    )


def for_model(connection: Connection, what: str, identity_id: int, *, kind: str, now: float) -> Job:
    """Return the open job that embeds all texts with an identity; it is made when there is none."""
    same = _rows(
        connection,
        "WHERE ended_at = 0 AND kind = ? AND what = ? AND identity_id = ? ORDER BY id DESC LIMIT 1",
        *(kind, what, identity_id),
    )
    if same:
        return same[0]
    made = create(connection, kind, by=asker(), now_ns=int(now * 1e9), what=what)
    connection.execute("UPDATE jobs SET identity_id = ? WHERE id = ?", (identity_id, made.id))
    return made


def reopen(connection: Connection, job_id: int) -> None:
    """Let a job that seemed done go on: more texts of it came."""
    connection.execute(
        "UPDATE jobs SET state = 'running', ended_at = 0 WHERE id = ? AND state = 'done'", (job_id,)
    )


def finish_settled(connection: Connection, now: float) -> None:
    """End the running jobs that have nothing left to read, to send or to wait for."""
    if scalar(connection, f"SELECT 1 FROM jobs WHERE {_SETTLED}") is None:
        return
    with transaction(connection):
        connection.execute(f"UPDATE jobs SET state = 'done', ended_at = ? WHERE {_SETTLED}", (now,))
        connection.execute(_PRUNE, (KEPT,))


_SETTLED = f"""
jobs.state = 'running' AND NOT EXISTS (SELECT 1 FROM job_files WHERE job = jobs.id)
AND NOT EXISTS (SELECT 1 FROM vectors WHERE {_UNSETTLED} AND vectors.job = jobs.id)
"""

#: The oldest jobs that ended, but for those whose texts are still wanted.
_PRUNE = f"""
DELETE FROM jobs WHERE ended_at > 0
AND id NOT IN (SELECT id FROM jobs WHERE ended_at > 0 ORDER BY ended_at DESC, id DESC LIMIT ?)
AND NOT EXISTS (SELECT 1 FROM vectors WHERE {_UNSETTLED} AND vectors.job = jobs.id)
"""


def pause(connection: Connection, job: Job) -> bool:
    """Read no more files of a running job and send none of its texts; False when it is not running.

    Requests in flight end as usual, and a live edit takes its texts out of the job.
    """
    return _change(connection, job, PAUSED, f"('{RUNNING}')")


def resume(connection: Connection, job: Job) -> bool:
    """Let a paused job go on; False when it is not paused."""
    return _change(connection, job, RUNNING, f"('{PAUSED}')")


def cancel(connection: Connection, job: Job, now: float) -> tuple[int, int] | None:
    """End an open job: nothing more of it is read or sent; returns the counts of (files, texts) given up.

    None when it has ended already. Its texts stay known as missing. Those of an open batch are given up as
    well: what that does not finish is not embedded.
    """
    if not _change(connection, job, CANCELLED, f"('{RUNNING}', '{PAUSED}')", ended_at=now):
        return None
    files = connection.execute("DELETE FROM job_files WHERE job = ?", (job.id,)).rowcount
    texts = scalar(
        connection,
        f"SELECT count(*) FROM vectors WHERE {_UNSETTLED} AND job = ? AND (state = 'wanted'"
        " OR lease IN (SELECT token FROM batches WHERE state <> 'closed'))",
        job.id,
    )
    return files, texts


def take_up(connection: Connection) -> int:
    """Let cancelled jobs go on whose texts are missing; returns how many texts."""
    texts = scalar(
        connection,
        "SELECT count(*) FROM jobs CROSS JOIN vectors ON vectors.job = jobs.id"
        f" WHERE jobs.state = 'cancelled' AND {_UNSETTLED}",
    )
    connection.execute(
        "UPDATE jobs SET state = 'running', ended_at = 0, files = files_done WHERE state = 'cancelled'"
        f" AND EXISTS (SELECT 1 FROM vectors WHERE {_UNSETTLED} AND vectors.job = jobs.id)"
    )
    return int(texts)


def _change(connection: Connection, job: Job, state: str, allowed: str, *, ended_at: float = 0.0) -> bool:
    """Move a job to another state; False when it is in none of those allowed."""
    change = f"UPDATE jobs SET state = ?, ended_at = ? WHERE id = ? AND state IN {allowed}"
    return bool(connection.execute(change, (state, ended_at, job.id)).rowcount)


def _rows(connection: Connection, condition: str, *parameters: Any) -> list[Job]:
    names = Job.__struct_fields__
    rows = connection.execute(f"SELECT {', '.join(names)} FROM jobs {condition}", parameters)
    return [Job(**dict(zip(names, row, strict=True))) for row in rows.fetchall()]
