"""Batches as rows: jobs of a provider's Batch API, what they are doing, and the last ones that are over.

    filling ─► intent ─► uploaded ─► submitted ─► collecting ─► cleaning ─► closed
       texts      file      job at the   its rows     files at the     history
       leased     sent      provider     come back    provider removed

The token of a batch is the lease of its rows in `vectors` and its tag at the provider: whatever a crash cut
off is found again by it. A batch lease ends only through its row here, never by a time or a dead process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.index.driver import transaction
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: The states in which the texts of a batch wait for it.
UNFINISHED = ("filling", "intent", "uploaded", "submitted")

#: The schema since which there are batches; a reader may look at an older index.
_SINCE_SCHEMA = 2


@value
class Batch:
    """One job, or what became of it."""

    token: str
    identity_id: int
    #: filling, intent, uploaded, submitted, collecting, cleaning or closed.
    state: str
    #: done, partial, failed, expired, cancelled, timed out, or lost (the provider does not know it any more,
    #: or cannot give what it made); empty while the provider works on it.
    outcome: str
    #: What it tells of the provider: one of the words of `Verdict`; empty until it is over.
    verdict: str
    #: Texts in it, and what became of them so far: vectors stored, texts that brought an error instead.
    rows: int
    stored: int
    failed: int
    #: The provider's names of the uploaded file and of the job; empty until they are known.
    file_id: str
    job_id: str
    #: The provider's own word for the state of the job, and its counts, as of `looked_at`.
    said: str
    rows_done: int
    rows_failed: int
    #: The last trouble with it, and what a person can do about it.
    error: str
    action: str
    #: Times in seconds since the epoch; 0 for not yet.
    created_at: float
    #: When the call was begun whose answer is not known; 0 when every answer is.
    calling_at: float
    #: Times an upload was begun.
    uploads: int
    submitted_at: float
    looked_at: float
    closed_at: float
    #: When it is looked at next, and the wait between two looks in seconds.
    due: float
    wait_s: float
    #: When it is given up; 0: when the provider does.
    deadline: float
    #: Times in a row that its present step failed.
    attempts: int
    #: The process that works on it, and until when at most.
    owner: str
    owner_until: float
    #: When somebody asked for its end, why, and when the provider was told.
    cancel_asked: float
    cancel_reason: str
    cancelled_at: float

    @property
    def is_open(self) -> bool:
        return self.state != "closed"

    @property
    def is_unfinished(self) -> bool:
        """Whether the provider is not done with it, or has not got it yet."""
        return self.state in UNFINISHED

    @property
    def is_claimed(self) -> bool:
        """Whether some process said that it works on it; it may have died since."""
        return bool(self.owner)


class Verdict:
    """What a batch that is over tells of the provider, and so what happens to the texts it did not bring."""

    #: It brought vectors.
    WORKED = "worked"
    #: The breaker counts a failure.
    FAILED = "failed"
    #: There is no Batch API here: the breaker opens at once.
    UNAVAILABLE = "unavailable"
    #: Bad key, no quota: the provider is paused, for requests too.
    STOP = "stop"
    #: The job was above a cap: smaller ones from now on.
    TOO_BIG = "too_big"
    #: Somebody ended it.
    NONE = "none"


_COLUMNS = ", ".join(Batch.__annotations__)


def open_batches(connection: Connection) -> list[Batch]:
    """The batches that are not over, oldest first."""
    if not _are_there(connection):
        return []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM batches WHERE state <> 'closed' ORDER BY created_at, token"
    )
    return [_batch(row) for row in rows]


def unfinished(connection: Connection) -> int:
    """How many batches hold a place: those the provider is not done with, or has not got yet."""
    row = connection.execute(
        "SELECT count(*) FROM batches WHERE state <> 'closed' AND state NOT IN ('collecting', 'cleaning')"
    ).fetchone()
    return int(row[0])


def latest(connection: Connection, limit: int) -> list[Batch]:
    """The batches made last, open or closed, newest first."""
    if not _are_there(connection):
        return []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM batches ORDER BY created_at DESC, token LIMIT ?", (limit,)
    )
    return [_batch(row) for row in rows]


def get(connection: Connection, token: str) -> Batch | None:
    """The batch with this token."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM batches WHERE token = ?", (token,)).fetchone()
    return _batch(row) if row else None


def find(connection: Connection, name: str) -> list[Batch]:
    """The batches a person may mean: by token or its beginning, or by the provider's name of the job."""
    if not name or not _are_there(connection):
        return []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM batches WHERE substr(token, 1, length(?1)) = ?1 OR job_id = ?1"
        " ORDER BY created_at DESC, token",
        (name,),
    )
    return [_batch(row) for row in rows]


def texts_left(connection: Connection, token: str) -> int:
    """Texts of a batch that have neither come back nor failed."""
    row = connection.execute("SELECT count(*) FROM vectors WHERE lease = ?", (token,)).fetchone()
    return int(row[0])


def count(connection: Connection, token: str, *, stored: int = 0, failed: int = 0) -> bool:
    """Add to what became of a batch's texts, inside the caller's transaction; False when it is no batch."""
    added = connection.execute(
        "UPDATE batches SET stored = stored + ?, failed = failed + ? WHERE token = ?", (stored, failed, token)
    )
    return bool(added.rowcount)


def ask_cancel(connection: Connection, token: str, *, reason: str, now: float) -> bool:
    """Ask for the end of a batch; False when it is over, or its rows are coming back.

    The batch worker does it: it tells the provider, keeps the rows that were finished, and lets the others
    go out in requests.
    """
    with transaction(connection):
        asked = connection.execute(
            "UPDATE batches SET cancel_asked = iif(cancel_asked, cancel_asked, ?),"
            " cancel_reason = iif(cancel_asked, cancel_reason, ?), due = min(due, ?)"
            " WHERE token = ? AND (state IN ('filling', 'intent', 'uploaded', 'submitted')"
            # What a job made cannot be had: somebody need not wait for it.
            " OR (state = 'collecting' AND verdict = '' AND attempts > 0))",
            (now, reason, now, token),
        )
    return bool(asked.rowcount)


def _are_there(connection: Connection) -> bool:
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] >= _SINCE_SCHEMA)


def _batch(row: tuple[Any, ...]) -> Batch:
    return Batch(**dict(zip(Batch.__annotations__, row, strict=True)))
