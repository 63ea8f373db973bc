"""Keep batches as rows: jobs of a provider's Batch API that are open, and the last ones that are closed.

`shared.batches.batch_lifecycle` draws the states. The token of a batch is the lease of its rows in `vectors`
and its tag at the provider: whatever a crash cut off is found again by it. A batch lease ends only
through its row here, never by a time or a dead process.
"""

from __future__ import annotations

from collections.abc import Iterator

from memline.shared.index.driver import scalar, transaction
from memline.shared.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: The states in which a batch holds one of the places that `remote.batch.concurrency` gives.
UNFINISHED = ("intent", "uploaded", "submitted")

#: Outcomes besides the words of `shared.batches.remote.State` (done, failed, expired, cancelled).
PARTIAL, TIMED_OUT, LOST = "partial", "timed out", "lost"

#: Why a batch is cancelled that took too long, and one that its provider does not have yet.
TOO_LONG = "remote.batch.timeoutMinutes is over"
SWITCHED_OFF = "remote.batch.enabled is off now"
NOT_NEEDED = "its texts are gone"


#: What the error of a closed batch says whose files could not be removed.
FILES_LEFT = "files of this batch were left at the provider"

#: Texts read from the index at a time.
PAGE_ROWS = 500

#: Outcomes that count as a failure of the provider's Batch API.
FAILURES = ("failed", "expired", TIMED_OUT, LOST)


@value
class Batch:
    """One job, or what became of it."""

    token: str
    identity_id: int
    #: intent, uploaded, submitted, collecting, cleaning or closed.
    state: str
    #: done, partial, failed, expired, cancelled, timed out, or lost (the provider does not know
    #: the job any more, or cannot give what it made); empty until the batch is finished.
    outcome: str
    #: Texts in it, and what became of them so far: vectors stored, texts that brought an error instead.
    rows: int
    stored: int
    failed: int
    #: The provider's names of the uploaded file and of the job; empty until they are known.
    file_id: str
    job_id: str
    #: The provider's own word for the state of the job, and its counts, as of `polled_at`.
    provider_state: str
    rows_done: int
    rows_failed: int
    #: The last trouble with it, and what the operator can do about it.
    error: str
    action: str
    #: Times in seconds since the epoch; 0 for not yet.
    created_at: float
    #: When the upload or create began whose answer is unknown; 0 when every answer is known.
    call_started_at: float
    #: Times an upload was begun.
    uploads: int
    submitted_at: float
    polled_at: float
    closed_at: float
    #: When its next step is due, and the wait between two polls in seconds.
    due: float
    wait_s: float
    #: When it is cancelled at the provider because it took too long.
    deadline: float
    #: Times in a row that its present step failed.
    attempts: int
    #: The process that works on it, and until when at most; of none, when the last one ended.
    owner: str
    owner_until: float
    #: When its cancellation was asked for, why, and when the provider was told.
    cancel_requested_at: float
    cancel_reason: str
    cancelled_at: float
    #: Dollars, once it is finished; None before, and where no price is known.
    cost: float | None

    @property
    def is_open(self) -> bool:
        return self.state != "closed"

    @property
    def is_unfinished(self) -> bool:
        """Whether the provider has not finished it, or does not have it yet."""
        return self.state in UNFINISHED


def open_batches(connection: Connection) -> list[Batch]:
    """List the batches that are not closed, oldest first."""
    return _select(connection, "WHERE state <> 'closed' ORDER BY created_at, token")


def count_unfinished(connection: Connection) -> int:
    """Count the batches that hold a place."""
    query = "SELECT count(*) FROM batches WHERE state <> 'closed' AND state NOT IN ('collecting', 'cleaning')"
    return int(scalar(connection, query))


def latest(connection: Connection, limit: int) -> list[Batch]:
    """List the newest batches, open or closed, newest first."""
    return _select(connection, "ORDER BY created_at DESC, token LIMIT ?", limit)


def get(connection: Connection, token: str) -> Batch | None:
    """Return the batch with this token, if there is one."""
    return next(iter(_select(connection, "WHERE token = ?", token)), None)


def find(connection: Connection, name: str) -> list[Batch]:
    """Find batches by the beginning of their token, or by the provider's id of the job."""
    if not name:
        return []
    where = "WHERE substr(token, 1, length(?1)) = ?1 OR job_id = ?1 ORDER BY created_at DESC, token"
    return _select(connection, where, name)


def texts_left(connection: Connection, token: str) -> int:
    """Count the texts of a batch that have neither a vector nor an error yet."""
    return int(scalar(connection, "SELECT count(*) FROM vectors WHERE lease = ?", token))


def tokens_left(connection: Connection, token: str) -> int:
    """Count the tokens of those texts, as they are estimated."""
    return int(scalar(connection, "SELECT coalesce(sum(tokens), 0) FROM vectors WHERE lease = ?", token))


def hashes_left(connection: Connection, token: str) -> set[bytes]:
    """Return the hashes of those texts."""
    return {row[0] for row in connection.execute("SELECT text_hash FROM vectors WHERE lease = ?", (token,))}


def pages_of_texts(connection: Connection, token: str) -> Iterator[list[tuple[bytes, str]]]:
    """Read hash and text of what a batch holds, a page at a time.

    A read that lasts minutes would keep the write-ahead log from being taken in. A text whose last chunk was
    removed since it was leased is left out: it needs no vector.
    """
    last = 0
    while True:
        page = connection.execute(
            "SELECT id, text_hash,"
            " (SELECT text FROM chunks WHERE chunks.text_hash = vectors.text_hash LIMIT 1)"
            " FROM vectors WHERE lease = ? AND id > ? ORDER BY id LIMIT ?",
            (token, last, PAGE_ROWS),
        ).fetchall()
        if not page:
            return
        last = page[-1][0]
        yield [(digest, text) for _, digest, text in page if text is not None]


def is_any_text_needed(connection: Connection, token: str) -> bool:
    """Tell whether a chunk still needs any text of a batch."""
    query = (
        "SELECT 1 FROM vectors WHERE lease = ? AND EXISTS (SELECT 1 FROM chunks"
        " WHERE chunks.text_hash = vectors.text_hash) LIMIT 1"
    )
    return bool(scalar(connection, query, token))


def texts_awaited(connection: Connection, token: str) -> int:
    """Count the texts of a batch that a chunk needs and that have neither a vector nor an error yet."""
    return int(scalar(connection, "SELECT count(*) FROM vectors WHERE lease = ? AND active = 1", token))


def count(connection: Connection, token: str, *, stored: int = 0, failed: int = 0) -> bool:
    """Add to the counts of a batch, inside the caller's transaction; False when the token names no batch."""
    added = connection.execute(
        "UPDATE batches SET stored = stored + ?, failed = failed + ? WHERE token = ?", (stored, failed, token)
    )
    return bool(added.rowcount)


def poll_now(connection: Connection, token: str, now: float) -> bool:
    """Make the next step of a batch due at once; False when it is closed, or an answer is to come."""
    with transaction(connection):
        changed = connection.execute(
            "UPDATE batches SET due = min(due, ?), attempts = 0, action = ''"
            " WHERE token = ? AND state <> 'closed' AND call_started_at = 0",
            (now, token),
        )
    return bool(changed.rowcount)


def request_cancel(connection: Connection, token: str, *, reason: str, now: float) -> bool:
    """Ask for the cancellation of a batch; False when it is finished, or its rows are being stored.

    The batch worker does it: it tells the provider, keeps the rows that were finished, and lets the others be
    sent in requests.
    """
    with transaction(connection):
        asked = connection.execute(
            "UPDATE batches SET cancel_requested_at = iif(cancel_requested_at, cancel_requested_at, ?),"
            " cancel_reason = iif(cancel_requested_at, cancel_reason, ?), due = min(due, ?)"
            " WHERE token = ? AND (state IN ('intent', 'uploaded', 'submitted')"
            # The results cannot be fetched: the operator need not wait for them.
            " OR (state = 'collecting' AND attempts > 0))",
            (now, reason, now, token),
        )
    return bool(asked.rowcount)


def cancel_identity(connection: Connection, identity_id: int, *, reason: str, now: float) -> None:
    """Ask for the cancellation of every unfinished batch of an identity."""
    for batch in open_batches(connection):
        if batch.identity_id == identity_id and batch.is_unfinished:
            request_cancel(connection, batch.token, reason=reason, now=now)


def _select(connection: Connection, where: str, *parameters: object) -> list[Batch]:
    rows = connection.execute(f"SELECT {', '.join(Batch.__annotations__)} FROM batches {where}", parameters)
    return [Batch(**dict(zip(Batch.__annotations__, row, strict=True))) for row in rows]
