"""Keep full text: FTS5 over chunks and over names, by their row ids.

The tables have no content: what is searched is folded text, which is stored nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from memline.shared.index.driver import json_ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: Pages of full text that one transaction merges: some hundredths of a second.
_MERGED_PAGES = 500

_ADD = {
    "chunks": "INSERT INTO chunks_fts (rowid, text, heading, path, grams) VALUES (?, ?, ?, ?, ?)",
    "names": "INSERT INTO names_fts (rowid, text, grams) VALUES (?, ?, ?)",
}


class Document(NamedTuple):
    """A row of full text that is still to be added."""

    #: chunks or names.
    table: str
    #: Row id and columns.
    row: tuple[int | str, ...]


def add(connection: Connection, documents: Sequence[Document]) -> None:
    """Put new documents into full text, inside the caller's transaction.

    Last in it, and all at once: FTS5 writes what it has gathered to its tables before each statement that
    SQLite may have to undo alone. File by file that took twice as long.
    """
    for table, statement in _ADD.items():
        connection.executemany(statement, (each.row for each in documents if each.table == table))


def remove(connection: Connection, table: str, row_ids: Iterable[int]) -> None:
    """Remove documents from full text, inside the caller's transaction."""
    delete = f"DELETE FROM {table}_fts WHERE rowid IN (SELECT value FROM json_each(?))"
    connection.execute(delete, (json_ids(row_ids),))


def merge(connection: Connection) -> None:
    """Merge all segments of full text: deleted words stay in them until then."""
    for table in _ADD:
        connection.execute(f"INSERT INTO {table}_fts ({table}_fts) VALUES ('optimize')")


def merge_in_slices(connection: Connection) -> None:
    """Merge segments of one size where there are four, in short transactions: a search looks in each."""
    for table in _ADD:
        done = False
        while not done:
            before = connection.total_changes
            connection.execute(
                f"INSERT INTO {table}_fts ({table}_fts, rank) VALUES ('merge', {_MERGED_PAGES})"
            )
            # FTS5 changes no more than this when it is done.
            done = connection.total_changes - before < 2
