"""Keep jobs: reindexes, first imports, model changes and backfills, as rows that outlive every process.

    running ◄──► paused        `pause`, `resume`
       │           │
       ├───────────┴──► cancelled    its texts stay known as missing; a later job takes them up
       └──► done                     no file is left to be read, and no text wanted or in flight

A job begins with the files it has to read, a row of `job_files` each; the row goes when the ledger has the
file, however it came. Its texts carry its id (`vectors.job`), so what is left is counted where it is kept.
Only what was done is counted up, in the transaction that does it: rows that are ready change hands later.

All functions run inside the caller's transaction, but for `finish_settled`, `pause`, `resume`, `cancel`,
`take_up_cancelled` and `move_misplaced`.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Collection, Iterable, Mapping
from sqlite3 import Connection
from typing import Any

import msgspec
from msgspec.structs import fields

from memline.shared.index import meta, vectors
from memline.shared.index.driver import scalar, transaction

#: Values of `kind`.
IMPORT, REINDEX, MODEL, BACKFILL = "import", "reindex", "model", "backfill"

#: Values of `state`.
RUNNING, PAUSED, CANCELLED, DONE = "running", "paused", "cancelled", "done"

#: Ended jobs that are kept as history.
KEPT = 100

#: Priority of a text by the state of its job. What comes late for a job that is done is a backfill still.
_PRIORITY = {PAUSED: vectors.PAUSED, CANCELLED: vectors.CANCELLED}


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
    history: str

    @property
    def is_open(self) -> bool:
        return not self.ended_at

    @property
    def events(self) -> list[tuple[float, str, str]]:
        """What happened to it: (seconds since the epoch, event, by whom)."""
        return [(at, event, by) for at, event, by in json.loads(self.history)]


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has not done yet."""

    files: int = 0
    #: Texts that are wanted or in flight, and their estimated tokens.
    texts: int = 0
    tokens: int = 0
    failed: int = 0


_SELECT = f"SELECT {', '.join(field.name for field in fields(Job))} FROM jobs"


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
        "INSERT INTO jobs (token, kind, what, asked_by, state, force, created_ns, files, history)"
        " VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?) RETURNING id",
        *(os.urandom(4).hex(), kind, what, by, int(force), now_ns, len(listed)),
        json.dumps([[now_ns / 1e9, "asked", by]]),
    )
    connection.executemany(
        "INSERT INTO job_files (job, path, size) VALUES (?, ?, ?)",
        ((job_id, path, size) for path, size in listed.items()),
    )
    made = by_id(connection, job_id)
    assert made is not None
    return made


def by_id(connection: Connection, job_id: int) -> Job | None:
    """Return the row of a job."""
    return next(iter(_rows(connection, "WHERE id = ?", job_id)), None)


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
    counts: dict[int, dict[str, int]] = {}
    for job, files in connection.execute("SELECT job, count(*) FROM job_files GROUP BY job"):
        counts.setdefault(job, {})["files"] = files
    # By the index of the backlog alone and in its order: it may have a million rows.
    for job, state, texts, tokens in connection.execute(
        "SELECT job, state, count(*), sum(tokens) FROM vectors WHERE state <> 'ready'"
        " GROUP BY state, identity_id, priority, job"
    ):
        if not job:
            continue
        of_job = counts.setdefault(job, {})
        if state == "failed":
            of_job["failed"] = of_job.get("failed", 0) + texts
        else:
            of_job["texts"] = of_job.get("texts", 0) + texts
            of_job["tokens"] = of_job.get("tokens", 0) + tokens
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


def place_of(connection: Connection, token: str) -> tuple[int, int]:
    """Return (priority, job id) for the texts of a file that was read for this job; "": for a live edit."""
    if not token:
        return vectors.LIVE_EDIT, 0
    job = by_token(connection, token)
    if job is None or job.state == DONE:
        # Of an index that was replaced, or read once more after the job had ended.
        return vectors.BACKFILL, 0
    return _PRIORITY.get(job.state, vectors.BACKFILL), job.id


def add_done(
    connection: Connection,
    done: Mapping[int, tuple[int, int]],
    identity_id: int,
    *,
    by_batch: bool,
    now: float,
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


#: What happened to a change of model that another one took the place of.
_REPLACED = "replaced"


def cancel_replaced(connection: Connection, kept: Collection[int], now: float) -> None:
    """Cancel changes to models that are not wanted any more, inside the caller's transaction.

    One that is wanted again goes on, with the texts that wait for it: a person did not cancel it.
    """
    for job in open_jobs(connection):
        if job.kind == MODEL and job.identity_id and job.identity_id not in kept:
            _change(connection, job.id, (RUNNING, PAUSED), CANCELLED, _REPLACED, asker(), now)
    for job in _rows(connection, "WHERE kind = ? AND state = ?", MODEL, CANCELLED):
        if job.identity_id in kept and job.events[-1][1] == _REPLACED:
            was_paused = [event for _, event, _ in job.events][-2:-1] == [PAUSED]
            state, event = (PAUSED, PAUSED) if was_paused else (RUNNING, "resumed")
            _change(connection, job.id, (CANCELLED,), state, event, asker(), now)


def reopen(connection: Connection, job_id: int) -> None:
    """Let a job that seemed done go on: more texts of it came."""
    connection.execute(
        "UPDATE jobs SET state = 'running', ended_at = 0 WHERE id = ? AND state = 'done'", (job_id,)
    )


def finish_settled(connection: Connection, now: float) -> None:
    """End the running jobs that have nothing left to read, to send or to wait for."""
    settled = [job_id for (job_id,) in connection.execute(_SETTLED)]
    if not settled:
        return
    with transaction(connection):
        for (job_id,) in connection.execute(_SETTLED).fetchall():
            _change(connection, job_id, (RUNNING,), DONE, DONE, "", now)
        prune(connection)


#: Each part by an index: this is asked after every request.
_SETTLED = """
SELECT id FROM jobs WHERE ended_at = 0 AND state = 'running'
    AND NOT EXISTS (SELECT 1 FROM job_files WHERE job = jobs.id)
    AND NOT EXISTS (SELECT 1 FROM vectors WHERE state IN ('wanted', 'leased') AND state <> 'ready'
                    AND identity_id IN (SELECT identities.id FROM identities)
                    AND priority IN (0, 1, 2, 3) AND vectors.job = jobs.id)
"""


def prune(connection: Connection) -> None:
    """Forget the oldest ended jobs, but for those whose texts are still wanted."""
    connection.execute(
        "DELETE FROM jobs WHERE ended_at > 0 AND id NOT IN"
        " (SELECT id FROM jobs WHERE ended_at > 0 ORDER BY ended_at DESC, id DESC LIMIT ?)"
        " AND id NOT IN (SELECT job FROM vectors WHERE state <> 'ready')",
        (KEPT,),
    )


def pause(connection: Connection, job: Job, *, by: str, now: float) -> bool:
    """Read no more files of a running job and send none of its texts; False when it is not running.

    Requests in flight end as usual, and a live edit takes its texts out of the job.
    """
    return _hold(connection, job, PAUSED, by, now) > -1


def resume(connection: Connection, job: Job, *, by: str, now: float) -> bool:
    """Let a paused job go on; False when it is not paused."""
    with transaction(connection):
        if not _change(connection, job.id, (PAUSED,), RUNNING, "resumed", by, now):
            return False
    _move_texts(connection, job.id, RUNNING)
    return True


def cancel(connection: Connection, job: Job, *, by: str, now: float) -> tuple[int, int] | None:
    """End an open job: nothing more of it is read or sent; returns the counts of (files, texts) given up.

    None when it has ended already. Its texts stay known as missing, until a later job takes them up.
    """
    files = scalar(connection, "SELECT count(*) FROM job_files WHERE job = ?", job.id)
    texts = _hold(connection, job, CANCELLED, by, now)
    return None if texts < 0 else (files, texts + scalar(connection, _IN_BATCHES, job.id))


#: Texts of a job whose batch is not closed: what it does not finish is not embedded either.
_IN_BATCHES = """
SELECT count(*) FROM vectors WHERE state = 'leased' AND state <> 'ready'
    AND identity_id IN (SELECT id FROM identities) AND priority IN (0, 1, 2, 3) AND job = ?
    AND lease IN (SELECT token FROM batches WHERE state <> 'closed')
"""


def take_up_cancelled(connection: Connection, job: Job) -> int:
    """Give the texts of all cancelled jobs to this one; returns how many."""
    texts = vectors.change_priority(connection, vectors.CANCELLED, vectors.BACKFILL, new_job=job.id)
    if texts:
        with transaction(connection):
            # One without files seems done until its first texts come.
            reopen(connection, job.id)
    return texts


def move_misplaced(connection: Connection) -> None:
    """Give texts the priority of their job's state, where the process that changed it died before it did so.

    Else texts of a job that was resumed would wait for ever, and those of a paused one be sent.
    """
    for job_id, state in connection.execute(_MISPLACED).fetchall():
        _move_texts(connection, job_id, state)


#: Jobs with texts at another priority than that of their state; a live edit is first whatever the state. By
#: the index of the backlog, since it is asked every few seconds.
_MISPLACED = f"""
SELECT id, state FROM jobs WHERE EXISTS (
    SELECT 1 FROM vectors WHERE state IN ('wanted', 'leased', 'failed') AND state <> 'ready'
        AND identity_id IN (SELECT identities.id FROM identities)
        AND priority IN ({vectors.BACKFILL}, {vectors.CANCELLED}, {vectors.PAUSED})
        AND priority <> CASE jobs.state
            WHEN '{PAUSED}' THEN {vectors.PAUSED} WHEN '{CANCELLED}' THEN {vectors.CANCELLED}
            ELSE {vectors.BACKFILL} END
        AND vectors.job = jobs.id)
"""


def _move_texts(connection: Connection, job_id: int, state: str) -> int:
    """Give the texts of a job the priority of its state; returns how many were wanted."""
    priority = _PRIORITY.get(state, vectors.BACKFILL)
    others = {vectors.BACKFILL, vectors.CANCELLED, vectors.PAUSED} - {priority}
    return sum(vectors.change_priority(connection, old, priority, job=job_id) for old in others)


def _hold(connection: Connection, job: Job, state: str, by: str, now: float) -> int:
    """Keep the texts of a job back; returns how many, -1 when its state does not allow it."""
    allowed = (RUNNING,) if state == PAUSED else (RUNNING, PAUSED)
    with transaction(connection):
        # First, so that what is stored from here on respects it.
        if not _change(connection, job.id, allowed, state, state, by, now):
            return -1
        if state == CANCELLED:
            connection.execute("DELETE FROM job_files WHERE job = ?", (job.id,))
    return _move_texts(connection, job.id, state)


def _change(
    connection: Connection, job_id: int, allowed: tuple[str, ...], state: str, event: str, by: str, now: float
) -> bool:
    """Move a job to another state and write that down; False when it is in none of those allowed."""
    row = connection.execute("SELECT state, history FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None or row[0] not in allowed:
        return False
    history = json.dumps([*json.loads(row[1]), [now, event, by]])
    ended_at = now if state in (CANCELLED, DONE) else 0.0
    connection.execute(
        "UPDATE jobs SET state = ?, ended_at = ?, history = ? WHERE id = ?",
        (state, ended_at, history, job_id),
    )
    return True


def _rows(connection: Connection, condition: str, *parameters: Any) -> list[Job]:
    names = [field.name for field in fields(Job)]
    rows = connection.execute(f"{_SELECT} {condition}", parameters)
    return [Job(**dict(zip(names, row, strict=True))) for row in rows.fetchall()]
