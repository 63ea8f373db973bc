"""The open batches of an index: which process works on each, which are due, awaited, or of no use any more.

A claim ends with its block, when its time is over, or when its process is found dead. Every record is a
compare-and-set: a process that was suspended learns on waking that another one works on the batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memline.shared.batches import planning
from memline.shared.clock import Clock
from memline.shared.config.schema import Batch as BatchSettings
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import IndexFault
from memline.shared.index import batches, identities, vectors
from memline.shared.index.batches import FAILURES, PARTIAL, Batch
from memline.shared.index.driver import transaction
from memline.shared.index.vectors import CANCELLED
from memline.shared.scheduling import leases
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Closed batches that are kept to be shown.
KEPT = 100

#: Seconds a claim holds without being renewed. Longer than any single call; the long steps renew it.
CLAIM_S = 300.0

#: Seconds after which the message about a due batch is sent again if no worker has taken the batch.
RESEND_S = 30.0


class ClaimLost(IndexFault):
    """Another process works on the batch now; this one must not touch it any more."""


@value(frozen=False)
class Claim:
    """The right to work on one batch, and the batch as its row was last written."""

    batch: Batch
    connection: Connection
    clock: Clock
    _owner: str
    _renewed_at: float

    def record(self, *, hold_s: float = CLAIM_S, **columns: object) -> Batch:
        """Write columns and renew the claim for `hold_s`; returns the batch. Raises ClaimLost."""
        if not self.connection.in_transaction:
            with transaction(self.connection):
                return self.record(hold_s=hold_s, **columns)
        names = "".join(f"{name} = ?, " for name in columns)
        done = self.connection.execute(
            f"UPDATE batches SET {names}owner_until = ? WHERE token = ? AND owner = ?",
            (*columns.values(), self.clock.now() + hold_s, self.batch.token, self._owner),
        )
        if not done.rowcount:
            raise ClaimLost(f"batch {self.batch.token}: another process works on it now")
        self._renewed_at = self.clock.now()
        written = batches.get(self.connection, self.batch.token)
        assert written is not None
        self.batch = written
        return written

    def renew(self) -> None:
        """Renew the claim, unless that was done a moment ago. Raises ClaimLost."""
        if self.clock.now() - self._renewed_at > CLAIM_S / 10:
            self.record()


@contextmanager
def claimed(connection: Connection, token: str, clock: Clock) -> Iterator[Claim | None]:
    """Claim an open batch for a block; None when it is closed or another process works on it."""
    # The process, which can be found dead, and the one message it works on.
    owner = f"{leases.current_owner()}/{uuid.uuid4().hex[:8]}"
    now = clock.now()
    batch = batches.get(connection, token)
    if batch is None or not batch.is_open or (batch.owner_until > now and _is_owner_alive(batch)):
        yield None
        return
    with transaction(connection):
        taken = connection.execute(
            "UPDATE batches SET owner = ?, owner_until = ? WHERE token = ? AND owner = ? AND state = ?",
            (owner, now + CLAIM_S, token, batch.owner, batch.state),
        )
    if not taken.rowcount:
        yield None
        return
    try:
        yield Claim(batch=batch, connection=connection, clock=clock, _owner=owner, _renewed_at=now)
    finally:
        with transaction(connection):
            connection.execute(
                # When its last step ended.
                "UPDATE batches SET owner = '', owner_until = ? WHERE token = ? AND owner = ?",
                (clock.now(), token, owner),
            )


def free_dead(connection: Connection, now: float) -> int:
    """Make batches due at once whose process died; returns how many."""
    freed = 0
    for batch in batches.open_batches(connection):
        if batch.owner and (batch.owner_until <= now or not _is_owner_alive(batch)):
            with transaction(connection):
                freed += connection.execute(
                    "UPDATE batches SET owner = '', owner_until = 0, due = min(due, ?)"
                    " WHERE token = ? AND owner = ?",
                    (now, batch.token, batch.owner),
                ).rowcount
    return freed


def take_due(
    connection: Connection, now: float, *, is_paused: bool = False
) -> tuple[list[str], float | None]:
    """Take the batches that are due and unclaimed; also when the next one is (seconds since the epoch).

    The caller sends the message about each. A batch is taken once in `RESEND_S`, by one process. `is_paused`:
    only batches that their provider has.
    """
    waiting = "state <> 'closed' AND owner = ''" + (" AND submitted_at > 0" if is_paused else "")
    next_due = f"SELECT min(due) FROM batches WHERE {waiting}"
    taken: list[str] = []
    # Nearly always none is due, and this is asked at every message.
    (due,) = connection.execute(next_due).fetchone()
    if due is not None and due <= now:
        with transaction(connection):
            taken = [
                token
                for (token,) in connection.execute(
                    f"UPDATE batches SET due = ? WHERE {waiting} AND due <= ? RETURNING token",
                    (now + RESEND_S, now),
                )
            ]
            (due,) = connection.execute(next_due).fetchone()
    return taken, due


def poll_now(connection: Connection, now: float) -> None:
    """Make every open batch due, whatever its last trouble, inside the caller's transaction.

    Not one whose last call may have had an effect that the provider does not show yet.
    """
    connection.execute(
        "UPDATE batches SET due = min(due, ?), attempts = 0, action = ''"
        " WHERE state <> 'closed' AND call_started_at = 0",
        (now,),
    )


def _is_owner_alive(batch: Batch) -> bool:
    return bool(batch.owner) and leases.is_owner_alive(batch.owner.partition("/")[0])


def cancel_unwanted(connection: Connection, chosen: Identity | None, now: float) -> None:
    """Ask for the cancellation of batches whose model is neither chosen, searched nor built.

    Not before the model that is built has brought a vector: a name may be misspelt for a day. `chosen` is the
    identity of the settings, also while a fallback is active.
    """
    target = identities.target(connection)
    by_settings = identities.by_key(connection, chosen.key) if chosen else None
    wanted = [row.id for row in (identities.active(connection), target, by_settings) if row]
    if target is None or not vectors.is_any_ready(connection, target.id):
        return
    for other in {batch.identity_id for batch in batches.open_batches(connection)}.difference(wanted):
        batches.cancel_identity(connection, other, reason="the model was changed", now=now)


def cancel_idle(connection: Connection, now: float) -> int:
    """Ask for the cancellation of batches that hold only texts of cancelled jobs; how many."""
    idle = connection.execute(
        "SELECT token FROM batches WHERE state IN ('intent', 'uploaded', 'submitted') AND NOT EXISTS"
        " (SELECT 1 FROM vectors WHERE lease = token AND priority <> ?)",
        (CANCELLED,),
    ).fetchall()
    reason = "its job was cancelled"
    return sum(batches.request_cancel(connection, token, reason=reason, now=now) for (token,) in idle)


def prune(connection: Connection) -> None:
    """Forget the oldest closed batches, inside the caller's transaction."""
    connection.execute(
        "DELETE FROM batches WHERE state = 'closed' AND token NOT IN"
        " (SELECT token FROM batches WHERE state = 'closed' ORDER BY closed_at DESC, token LIMIT ?)",
        (KEPT,),
    )


@value
class OpenBatches:
    """The open batches of an identity, as a command sees them that waits for its vectors."""

    #: Those that the provider has and that were polled since the command began.
    at_provider: tuple[Batch, ...] = ()
    #: Their texts that are still to come, and texts that wait for a place among the open batches.
    texts: int = 0
    queued: int = 0
    #: Whether another one is on its way to the provider, is being stored or cleaned up: a matter of moments.
    is_busy: bool = False
    #: Why a step of one of them failed that is tried again; empty when nothing is wrong.
    delayed: str = ""
    #: One that waits for the operator.
    blocked: Batch | None = None

    def may_leave(self, settings: BatchSettings) -> bool:
        """Tell whether a command need not wait for what the provider has."""
        return not settings.wait or self.blocked is not None


def open_batches(
    connection: Connection, identity_id: int, settings: BatchSettings, *, since: float
) -> OpenBatches:
    """Read the open batches of an identity. `since`: when the command began."""
    ours = [batch for batch in batches.open_batches(connection) if batch.identity_id == identity_id]
    unfinished = [batch for batch in ours if batch.state in (*batches.UNFINISHED, "collecting")]
    blocked = next((batch for batch in unfinished if batch.action), None)
    at_provider = tuple(batch for batch in unfinished if batch.action or _was_polled(batch, since))
    is_full = sum(batch.is_unfinished for batch in ours) >= settings.concurrency
    return OpenBatches(
        at_provider=at_provider,
        texts=sum(batches.texts_awaited(connection, batch.token) for batch in at_provider),
        queued=planning.count_waiting(connection, identity_id, settings.min_texts) if is_full else 0,
        # One whose files the provider does not let go is left to the next process.
        is_busy=any(
            batch not in at_provider and (batch.state != "cleaning" or not batch.attempts) for batch in ours
        ),
        delayed=next((batch.error for batch in unfinished if batch.error), ""),
        blocked=blocked,
    )


def failed_since(connection: Connection, identity_id: int, since: float) -> tuple[Batch, str] | None:
    """Return the last batch of an identity that failed since then, and how the rest of its texts was sent."""
    later = ""
    for batch in batches.latest(connection, KEPT):
        if batch.identity_id != identity_id:
            continue
        if batch.outcome in FAILURES and (batch.is_open or batch.closed_at >= since):
            return batch, later or "requests"
        if batch.outcome in ("done", PARTIAL):
            later = "another batch"
    return None


def _was_polled(batch: Batch, since: float) -> bool:
    """Tell whether the provider has it, is working on it and has been told what there is to tell."""
    is_told = bool(batch.cancelled_at) or not batch.cancel_requested_at
    return batch.state == "submitted" and is_told and max(batch.submitted_at, batch.polled_at) >= since
