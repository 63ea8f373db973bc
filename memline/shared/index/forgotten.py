"""Keep the list of what was forgotten.

It has hashes alone, by the path of the file: of texts, so that a vector of one that comes late is not kept,
and of lines that still stand in a note or transcript, so that they are not read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection


def lines_of(connection: Connection, path: str) -> frozenset[bytes]:
    """Return the hashes of the lines of a file that are not to be read."""
    query = "SELECT hash FROM forgotten WHERE path = ? AND kind = 'line'"
    return frozenset(row[0] for row in connection.execute(query, (path,)))


def texts_of(connection: Connection, path: str) -> frozenset[bytes]:
    """Return the hashes of texts that are not stored again: those of a file that still has their lines."""
    query = (
        "SELECT hash FROM forgotten WHERE path = ?1 AND kind = 'text'"
        " AND EXISTS (SELECT 1 FROM forgotten WHERE path = ?1 AND kind = 'line')"
    )
    return frozenset(row[0] for row in connection.execute(query, (path,)))


def count(connection: Connection) -> int:
    """Count the texts that were forgotten."""
    row = connection.execute("SELECT count(*) FROM forgotten WHERE kind = 'text'").fetchone()
    return int(row[0])


def add(connection: Connection, path: str, kind: str, hashes: Iterable[bytes], now: float) -> None:
    """Put hashes on the list, inside the caller's transaction."""
    connection.executemany(
        "INSERT OR IGNORE INTO forgotten (path, kind, hash, at) VALUES (?, ?, ?, ?)",
        ((path, kind, digest, now) for digest in hashes),
    )
