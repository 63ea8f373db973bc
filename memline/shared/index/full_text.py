"""Keep full text: FTS5 over chunks and over names, by their row ids.

The tables have no content: what is searched is folded text, which is made of the rows again when they go.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection
from typing import NamedTuple

#: Pages of full text that one transaction merges: some hundredths of a second.
_MERGED_PAGES = 500

_COLUMNS = {"chunks": "text, heading, path, grams", "names": "text, grams"}
TABLES = ("chunks_fts", "names_fts")


class Document(NamedTuple):
    """A row of full text."""

    #: chunks or names.
    table: str
    row_id: int
    columns: tuple[str, ...]


def add(connection: Connection, documents: Sequence[Document]) -> None:
    """Put new documents into full text, inside the caller's transaction.

    Last in it, and all at once: FTS5 writes what it has gathered to its tables before each statement that
    SQLite may have to undo alone. File by file that took twice as long.
    """
    for table, columns in _COLUMNS.items():
        connection.executemany(
            f"INSERT INTO {table}_fts (rowid, {columns}) VALUES (?{', ?' * len(columns.split())})",
            ((each.row_id, *each.columns) for each in documents if each.table == table),
        )


def remove(connection: Connection, documents: Sequence[Document]) -> None:
    """Remove documents from full text, inside the caller's transaction: FTS5 must be told what they were."""
    for table, columns in _COLUMNS.items():
        connection.executemany(
            f"INSERT INTO {table}_fts ({table}_fts, rowid, {columns})"
            f" VALUES ('delete', ?{', ?' * len(columns.split())})",
            ((each.row_id, *each.columns) for each in documents if each.table == table),
        )


def merge_in_slices(connection: Connection) -> None:
    """Merge segments of one size where there are four, in short transactions: a search looks in each."""
    for table in TABLES:
        # FTS5 changes one row at most when it is done.
        changes = 2
        while changes > 1:
            before = connection.total_changes
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', {_MERGED_PAGES})")
            changes = connection.total_changes - before
