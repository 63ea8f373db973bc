"""Keep batches as rows: jobs of a provider's Batch API that are open, and the last ones that are closed.

`shared.batches.life` draws the states. The token of a batch is the lease of its rows in `vectors` and its tag
at the provider: whatever a crash cut off is found again by it. A batch lease ends only through its row here,
never by a time or a dead process.
"""

from __future__ import annotations

from sqlite3 import Connection

import msgspec

from memline.shared.index import meta
from memline.shared.index.driver import scalar, select

#: Outcomes besides the final states of a job (done, failed, expired, cancelled).
PARTIAL, LOST = "partial", "lost"

#: Closed batches that are kept to be shown.
KEPT = 100


class Batch(msgspec.Struct, frozen=True):
    """One job, or what became of it, by the columns of `schema.sql`.

    Times are seconds since the epoch; 0 for not yet.
    """

    token: str
    identity_id: int
    state: str
    #: done, partial, failed, expired, cancelled, or lost (its provider does not know the job any more, or
    #: cannot give what it made); empty while it is open.
    outcome: str
    rows: int
    tokens: int
    stored: int
    #: The provider's names of the file and of the job.
    file_id: str
    job_id: str
    #: The provider's own word for the state of the job, and its count, as of `polled_at`.
    provider_state: str
    rows_done: int
    #: The last trouble with it, and what the operator can do about it.
    error: str
    action: str
    created_at: float
    call_started_at: float
    submitted_at: float
    polled_at: float
    closed_at: float
    due: float
    #: When it is cancelled at the provider because it took too long; after that, when it is given up.
    deadline: float
    #: Times in a row that its present step failed.
    attempts: int
    #: Why it is to be cancelled; empty when it is not.
    cancel_reason: str
    cancelled_at: float

    @property
    def is_open(self) -> bool:
        return self.state != "closed"

    @property
    def is_unfinished(self) -> bool:
        """Whether it has one of the places that `remote.batch.concurrency` gives."""
        return self.state in ("intent", "submitted")


def listed(connection: Connection) -> list[Batch]:
    """List the batches that are open and the last ones that were closed, newest first."""
    return select(connection, Batch, "batches", "ORDER BY created_at DESC, token")


def open_batches(connection: Connection) -> list[Batch]:
    """List the batches that are not closed, oldest first."""
    return select(connection, Batch, "batches", "WHERE state <> 'closed' ORDER BY created_at, token")


def get(connection: Connection, token: str) -> Batch | None:
    """Return the batch with this token, if there is one."""
    return next(iter(select(connection, Batch, "batches", "WHERE token = ?", token)), None)


def record(connection: Connection, token: str, **columns: object) -> None:
    """Write columns of a batch: one statement."""
    names = ", ".join(f"{name} = ?" for name in columns)
    connection.execute(f"UPDATE batches SET {names} WHERE token = ?", (*columns.values(), token))


def texts_left(connection: Connection, token: str, *, needed: bool = False) -> int:
    """Count the texts of a batch that have no vector yet; `needed`: only those that a chunk needs."""
    query = "SELECT count(*) FROM vectors WHERE lease = ? AND active >= ?"
    return int(scalar(connection, query, token, needed))


def count(connection: Connection, token: str, *, stored: int) -> bool:
    """Count vectors of a batch as stored, inside the caller's transaction; False when it is not a batch."""
    query = "UPDATE batches SET stored = stored + ? WHERE token = ?"
    return bool(connection.execute(query, (stored, token)).rowcount)


def due(connection: Connection, now: float) -> tuple[list[tuple[str, float]], float | None]:
    """Return the open batches whose next step is due, and since when; and when the first of the others is.

    While embedding is paused, only batches that their provider has.
    """
    is_paused = meta.get(connection, meta.PAUSED, False)
    waiting = "WHERE state <> 'closed'" + (" AND submitted_at > 0" if is_paused else "")
    rows = connection.execute(f"SELECT token, due FROM batches {waiting} ORDER BY due").fetchall()
    later = [at for _, at in rows if at > now]
    return [(token, at) for token, at in rows if at <= now], min(later, default=None)


def poll_now(connection: Connection, now: float) -> None:
    """Make the next step of each batch due at once, but of those whose answer is to come."""
    connection.execute(
        "UPDATE batches SET due = min(due, ?), attempts = 0, action = ''"
        " WHERE state <> 'closed' AND call_started_at = 0",
        (now,),
    )


def request_cancel(connection: Connection, token: str, *, reason: str, now: float) -> bool:
    """Ask the batch worker to cancel a batch; False when it is finished, or its rows are being stored."""
    asked = connection.execute(
        # Where a job may just have been made, its provider's list does not show it yet.
        "UPDATE batches SET cancel_reason = iif(cancel_reason = '', ?, cancel_reason),"
        " due = iif(call_started_at, due, min(due, ?))"
        " WHERE token = ? AND (state IN ('intent', 'submitted')"
        # The results cannot be fetched: the operator need not wait for them.
        " OR (state = 'collecting' AND attempts > 0))",
        (reason, now, token),
    )
    return bool(asked.rowcount)


def prune(connection: Connection) -> None:
    """Forget the oldest closed batches, inside the caller's transaction."""
    connection.execute(
        "DELETE FROM batches WHERE state = 'closed' AND token NOT IN"
        " (SELECT token FROM batches WHERE state = 'closed' ORDER BY closed_at DESC, token LIMIT ?)",
        (KEPT,),
    )
