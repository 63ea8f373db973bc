"""Who works on a batch: one process at a time, and what it did is written down only while that holds.

A claim ends when its work is done, when its time is over, or when its process is found dead. Every record is
a compare-and-set: a process that was suspended and comes back learns that the batch is another's.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.clock import Clock
from shared.errors import IndexFault
from shared.index import batches, dispatch
from shared.index.batches import Batch
from shared.index.driver import transaction

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Seconds a claim holds without a sign of life. Longer than any single call; the long steps renew it.
CLAIM_S = 300.0

#: Seconds after which a message about a batch that nobody took up is sent again.
HAND_OUT_S = 30.0


class ClaimLost(IndexFault):
    """Another process works on the batch now; this one must touch it no more."""


class Claim:
    """The right to work on one batch."""

    def __init__(self, connection: Connection, token: str, owner: str, clock: Clock) -> None:
        self._connection = connection
        self._token = token
        self._owner = owner
        self._clock = clock
        self._renewed = clock.now()
        found = batches.get(connection, token)
        assert found is not None
        self.batch: Batch = found

    def record(self, *, hold_s: float = CLAIM_S, **columns: object) -> Batch:
        """Write down what is known now; gives the batch as it is then. Raises ClaimLost.

        `hold_s`: for how long the claim holds from now on without another sign of life.
        """
        names = ", ".join(f"{name} = ?" for name in columns)
        with transaction(self._connection):
            done = self._connection.execute(
                f"UPDATE batches SET {names}, owner_until = ? WHERE token = ? AND owner = ?",
                (*columns.values(), self._clock.now() + hold_s, self._token, self._owner),
            )
            if not done.rowcount:
                raise ClaimLost(f"batch {self._token}: another process works on it now")
        self._renewed = self._clock.now()
        found = batches.get(self._connection, self._token)
        assert found is not None
        self.batch = found
        return found

    def renew(self) -> None:
        """Give a sign of life, if the last one is not of a moment ago. Raises ClaimLost."""
        if self._clock.now() - self._renewed > CLAIM_S / 10:
            self.record(attempts=self.batch.attempts)


@contextmanager
def claimed(
    connection: Connection, token: str, states: Collection[str], clock: Clock
) -> Iterator[Claim | None]:
    """The claim on a batch for a block; None when it is in another state, or another process has it."""
    # The process that can be found dead, and the one message it works on.
    owner = f"{dispatch.this_owner()}/{uuid.uuid4().hex[:8]}"
    now = clock.now()
    found = batches.get(connection, token)
    if found is None or found.state not in states or (found.owner_until > now and is_at_work(found)):
        yield None
        return
    with transaction(connection):
        taken = connection.execute(
            "UPDATE batches SET owner = ?, owner_until = ? WHERE token = ? AND owner = ? AND state = ?",
            (owner, now + CLAIM_S, token, found.owner, found.state),
        )
    if not taken.rowcount:
        yield None
        return
    try:
        yield Claim(connection, token, owner, clock)
    finally:
        with transaction(connection):
            connection.execute(
                "UPDATE batches SET owner = '', owner_until = 0 WHERE token = ? AND owner = ?", (token, owner)
            )


def is_at_work(batch: Batch) -> bool:
    """Whether the process that claimed a batch still lives."""
    return bool(batch.owner) and dispatch.is_alive(batch.owner.partition("/")[0])


def free_dead(connection: Connection, now: float) -> int:
    """Batches whose process died are due at once; returns how many."""
    freed = 0
    for batch in batches.open_batches(connection):
        if batch.owner and (batch.owner_until <= now or not is_at_work(batch)):
            with transaction(connection):
                freed += connection.execute(
                    "UPDATE batches SET owner = '', owner_until = 0, due = ? WHERE token = ? AND owner = ?",
                    (now, batch.token, batch.owner),
                ).rowcount
    return freed


def hand_out(
    connection: Connection, now: float, *, is_paused: bool = False
) -> tuple[list[Batch], float | None]:
    """The batches that are due and that nobody works on, and when the next one is (seconds since the epoch).

    Each is given once in a while. Whoever gets one sends the message about it; two processes never get the
    same one. `is_paused`: none that its provider does not have yet.
    """
    row = connection.execute(
        "SELECT min(due) FROM batches WHERE state NOT IN ('closed', 'filling') AND state <> 'closed'"
        " AND owner = ''"
    ).fetchone()
    if row[0] is None or row[0] > now:
        # Nearly always: this is asked at every message.
        return [], row[0]
    given: list[Batch] = []
    next_due: float | None = None
    for batch in batches.open_batches(connection):
        due = batch.due
        if batch.state == "filling" or batch.is_claimed or (is_paused and not batch.submitted_at):
            continue
        if due <= now:
            due = now + HAND_OUT_S
            with transaction(connection):
                taken = connection.execute(
                    "UPDATE batches SET due = ? WHERE token = ? AND due = ? AND owner = ''",
                    (due, batch.token, batch.due),
                )
            if taken.rowcount:
                given.append(batch)
        next_due = due if next_due is None else min(due, next_due)
    return given, next_due


def look_now(connection: Connection, now: float) -> None:
    """Somebody asked: every open batch is due, whatever was wrong with it, inside the caller's transaction.

    But not where the outcome of a call has to show first.
    """
    connection.execute(
        "UPDATE batches SET due = min(due, ?), attempts = 0, action = ''"
        " WHERE state <> 'closed' AND calling_at = 0",
        (now,),
    )
