"""Let one process at a time work on a batch, and record what it did only while its claim holds.

A claim ends with its block, when its time is over, or when its process is found dead. Every record is a
compare-and-set: a process that was suspended learns on waking that another one works on the batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memline.shared.clock import Clock
from memline.shared.errors import IndexFault
from memline.shared.index import batches
from memline.shared.index.batches import Batch
from memline.shared.index.driver import transaction
from memline.shared.scheduling import leases
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

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
                "UPDATE batches SET owner = '', owner_until = 0 WHERE token = ? AND owner = ?", (token, owner)
            )


def free_dead(connection: Connection, now: float) -> int:
    """Make batches due at once whose process died; returns how many."""
    freed = 0
    for batch in batches.open_batches(connection):
        if batch.owner and (batch.owner_until <= now or not _is_owner_alive(batch)):
            with transaction(connection):
                freed += connection.execute(
                    "UPDATE batches SET owner = '', owner_until = 0, due = ? WHERE token = ? AND owner = ?",
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
