"""Whose turn a wanted text is in, and how a backfill is cancelled and taken up again.

The column `backfill` of `vectors` is the turn. Texts of live edits go out first; then those of a backfill,
which is a reindex or a new model; those of a backfill that was cancelled stay where they are, so that the
index still knows what it lacks, until somebody takes them up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.index import meta
from shared.index.driver import transaction

if TYPE_CHECKING:
    from sqlite3 import Connection

LIVE, BACKFILL, SET_ASIDE = 0, 1, 2

#: Rows a transaction moves at most, so that a live edit never waits long.
_SLICE_ROWS = 200


def count(connection: Connection, identity_id: int, turn: int) -> int:
    """Wanted texts in a turn."""
    row = connection.execute(
        "SELECT count(*) FROM vectors"
        " WHERE state = 'wanted' AND state <> 'ready' AND identity_id = ? AND backfill = ?",
        (identity_id, turn),
    ).fetchone()
    return int(row[0])


def turn_of(connection: Connection, *, is_backfill: bool, asked_ns: int) -> int:
    """The turn of texts that come now and were asked for at `asked_ns`, perhaps before a cancellation."""
    if not is_backfill:
        return LIVE
    # A producer of another release may not say when.
    return SET_ASIDE if asked_ns and is_cancelled(connection, asked_ns) else BACKFILL


def is_cancelled(connection: Connection, asked_ns: int) -> bool:
    """Whether a backfill that was asked for at `asked_ns` (ns since the epoch) has been cancelled since."""
    return bool(meta.get(connection, meta.CANCELLED_NS, 0) > asked_ns)


def cancel(connection: Connection, now_ns: int) -> int:
    """Set every text of a backfill aside, also those that are still on their way here.

    Returns how many will not be sent now. Requests that are out come back as usual; of those, only a text
    that would have to be sent again stays behind.
    """
    with transaction(connection):
        # First, so that what is stored from here on knows of it.
        meta.put(connection, meta.CANCELLED_NS, now_ns)
    _move(connection, "leased", BACKFILL, SET_ASIDE)
    return _move(connection, "wanted", BACKFILL, SET_ASIDE)


def take_up(connection: Connection) -> int:
    """Let what was set aside be a backfill again; returns how many texts."""
    _move(connection, "leased", SET_ASIDE, BACKFILL)
    return _move(connection, "wanted", SET_ASIDE, BACKFILL)


def _move(connection: Connection, state: str, turn: int, to: int) -> int:
    moved = 0
    while True:
        with transaction(connection):
            slice_rows = connection.execute(
                "UPDATE vectors SET backfill = ? WHERE id IN (SELECT id FROM vectors"
                " WHERE state = ? AND state <> 'ready' AND backfill = ? LIMIT ?)",
                (to, state, turn, _SLICE_ROWS),
            ).rowcount
        if not slice_rows:
            return moved
        moved += int(slice_rows)
