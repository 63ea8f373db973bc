"""Take every byte of what was deleted out of an index that other processes may have open."""

from __future__ import annotations

import time
from sqlite3 import Connection

from memline.shared.errors import IndexFault
from memline.shared.index import full_text
from memline.shared.index.driver import transaction

#: Seconds to wait for readers of an old state before the WAL can be emptied, and between two attempts.
LOG_WAIT_S = 60.0
_ATTEMPT_EVERY_S = 0.05

#: What no chunk needs: also texts that were taken out of a note by hand, whose vectors are cached.
_UNUSED = "text_hash NOT IN (SELECT text_hash FROM chunks)"


def drop_vectors(connection: Connection) -> tuple[int, list[str]]:
    """Delete the vectors that no chunk needs; returns how many, and the open batches with them."""
    with transaction(connection):
        tokens = connection.execute(
            f"SELECT DISTINCT lease FROM vectors WHERE {_UNUSED} AND lease IN"
            " (SELECT token FROM batches WHERE state <> 'closed') ORDER BY lease"
        ).fetchall()
        removed = connection.execute(f"DELETE FROM vectors WHERE {_UNUSED}").rowcount
    return removed, [token for (token,) in tokens]


def erase(connection: Connection) -> None:
    """Write the whole index anew without what was deleted, and empty its WAL.

    FTS5 keeps deleted words until its segments are merged, and a page that SQLite has split may keep a copy
    of a row. Other processes may have the index open. Raises IndexFault when one reads an old state for too
    long.
    """
    with transaction(connection):
        full_text.merge(connection)
    connection.execute("VACUUM")
    until = time.monotonic() + LOG_WAIT_S
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > until:
            raise IndexFault(
                "another process reads an old state of the index, so its log cannot be emptied",
                hint="end the other process, then run the command again",
            )
        time.sleep(_ATTEMPT_EVERY_S)
