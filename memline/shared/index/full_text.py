"""Keep full text: FTS5 over the rows of chunks, so that a text is stored once, and over names."""

from __future__ import annotations

import json
from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: Segments of full text above which they are merged: a word is looked for in each of them. With eight a warm
#: keyword search among 9,000 chunks took 5.2 ms, with one 4.5.
_MOST_SEGMENTS = 4

#: Pages of full text that one transaction merges: some hundredths of a second.
_MERGED_PAGES = 500

#: How FTS5 makes words of a text, here and in `schema.sql`.
TOKENIZER = "porter unicode61 remove_diacritics 2"

_COLUMNS = "text, heading, path, grams"

_DOCUMENTS_OF = (
    "FROM chunk_documents"
    " WHERE id IN (SELECT id FROM chunks WHERE file_id = ? AND ordinal >= ? AND ordinal < ?)"
)


def add(connection: Connection, chunk_ids: Sequence[int]) -> None:
    """Put new chunks and the names of their files into full text, inside the caller's transaction.

    Last in it, and all at once: FTS5 writes what it has gathered to its tables before each statement that
    SQLite may have to undo alone, such as one with a trigger. File by file that took twice as long.
    """
    if not chunk_ids:
        return
    ids = json.dumps(chunk_ids)
    connection.execute(
        f"INSERT INTO chunks_fts (rowid, {_COLUMNS}) SELECT id, {_COLUMNS} FROM chunk_documents"
        " WHERE id IN (SELECT value FROM json_each(?))",
        (ids,),
    )
    connection.execute(
        "INSERT INTO names_fts (rowid, text, grams) SELECT id, text, grams FROM names"
        " WHERE text IS NOT NULL AND file_id IN (SELECT file_id FROM chunks"
        " WHERE ordinal = 0 AND id IN (SELECT value FROM json_each(?)))",
        (ids,),
    )


def remove(connection: Connection, file_id: int, first: int, stop: int) -> None:
    """Remove chunks of a file from full text while their rows are there, inside the caller's transaction.

    `first` is the ordinal of the first of them, `stop` the one after the last.
    """
    # External content: FTS5 must be told the old values before they are gone.
    connection.execute(
        f"INSERT INTO chunks_fts (chunks_fts, rowid, {_COLUMNS})"
        f" SELECT 'delete', id, {_COLUMNS} {_DOCUMENTS_OF}",
        (file_id, first, stop),
    )


def merge(connection: Connection) -> None:
    """Merge all segments of full text: deleted words stay in them until then."""
    for table in ("chunks_fts", "names_fts"):
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def has_many_segments(connection: Connection) -> bool:
    """Tell whether a search reads full text in many places, as after a first index."""
    # FTS5's structure: a cookie of four bytes, and as varints the levels, the segments and more.
    structure = connection.execute("SELECT block FROM chunks_fts_data WHERE id = 10").fetchone()[0]
    return bool(structure[5] > _MOST_SEGMENTS)


def merge_in_slices(connection: Connection) -> None:
    """Do the same in short transactions, so that a live edit never waits long."""
    for table in ("chunks_fts", "names_fts"):
        # The first begins a merge of all segments, the others go on; FTS5 changes no more when it is done.
        pages, done = -_MERGED_PAGES, False
        while not done:
            before = connection.total_changes
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
            pages, done = _MERGED_PAGES, connection.total_changes - before < 2
