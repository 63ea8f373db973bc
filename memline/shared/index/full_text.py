"""Keep full text: FTS5 over the rows of chunks, so that a text is stored once, and over names.

Two indexes of the chunks: of stems with their places, and of the words as typed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from memline.shared.digests import sha256
from memline.shared.index import meta

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

#: The indexes of chunks, and their columns: by stems, and the words as typed.
FULL_TEXT = {"chunks_fts": "text, heading, path, grams", "forms_fts": "text, heading, path"}

_DOCUMENTS_OF = (
    "FROM chunk_documents"
    " WHERE id IN (SELECT id FROM chunks WHERE file_id = ? AND ordinal >= ? AND ordinal < ?)"
)

#: Chunks from which on words are counted beforehand: of fewer a word is counted in two milliseconds at most.
MANY_CHUNKS = 100_000

#: Chunks with a word from which on its count is kept.
LEAST = 20_000

_COUNTS = "SELECT term, doc FROM temp.words WHERE doc >= ?"


def add(connection: Connection, chunk_ids: Sequence[int]) -> None:
    """Put new chunks and the names of their files into full text, inside the caller's transaction.

    Last in it, and all at once: FTS5 writes what it has gathered to its tables before each statement that
    SQLite may have to undo alone, such as one with a trigger. File by file that took twice as long.
    """
    if not chunk_ids:
        return
    meta.add(connection, meta.FULL_TEXT_CHANGES, 1)
    ids = json.dumps(chunk_ids)
    for table, columns in FULL_TEXT.items():
        connection.execute(
            f"INSERT INTO {table} (rowid, {columns}) SELECT id, {columns} FROM chunk_documents"
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
    meta.add(connection, meta.FULL_TEXT_CHANGES, 1)
    # External content: FTS5 must be told the old values before they are gone.
    for table, columns in FULL_TEXT.items():
        connection.execute(
            f"INSERT INTO {table} ({table}, rowid, {columns}) SELECT 'delete', id, {columns} {_DOCUMENTS_OF}",
            (file_id, first, stop),
        )


def merge(connection: Connection) -> None:
    """Merge all segments of full text: deleted words stay in them until then."""
    for table in (*FULL_TEXT, "names_fts"):
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def has_many_segments(connection: Connection) -> bool:
    """Tell whether a search reads full text in many places, as after a first index."""
    # FTS5's structure: a cookie of four bytes, and as varints the levels, the segments and more.
    structure = connection.execute("SELECT block FROM chunks_fts_data WHERE id = 10").fetchone()[0]
    return bool(structure[5] > _MOST_SEGMENTS)


def merge_in_slices(connection: Connection) -> None:
    """Do the same in short transactions, so that a live edit never waits long."""
    for table in (*FULL_TEXT, "names_fts"):
        # The first begins a merge of all segments, the others go on; FTS5 changes no more when it is done.
        pages, done = -_MERGED_PAGES, False
        while not done:
            before = connection.total_changes
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
            pages, done = _MERGED_PAGES, connection.total_changes - before < 2


def state(connection: Connection) -> tuple[object, object]:
    """Return a value that differs whenever full text does.

    The count of changes, and what FTS5 keeps of its rows and segments, which alone may be the same again
    after a change and a merge.
    """
    blocks = connection.execute("SELECT block FROM chunks_fts_data WHERE id IN (1, 10)").fetchall()
    return meta.get(connection, meta.FULL_TEXT_CHANGES, 0), blocks


def store_common_words(connection: Connection) -> None:
    """Count the common words where there are many chunks; outside a transaction.

    FTS5 counts a word anew each time, 18 ns a chunk. Counted once full text was merged, 8 s of CPU for a
    million chunks, they hold until it changes: questions take a third less.
    """
    counts: dict[str, dict[str, int]] = {}
    mark = _mark(connection)
    if connection.execute("SELECT count(*) FROM chunks").fetchone()[0] >= MANY_CHUNKS:
        for table in FULL_TEXT:
            # The one before, or what a count left that broke off.
            connection.execute("DROP TABLE IF EXISTS temp.words")
            connection.execute(f"CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, {table}, row)")
            found = counts[table] = {}
            # One by one, so that an interrupt need not wait for all.
            for word, count in connection.execute(_COUNTS, (LEAST,)):
                found[word] = count
        connection.execute("DROP TABLE temp.words")
    elif meta.get(connection, meta.COMMON_WORDS) is None:
        return
    # What another process changes after this look makes another mark.
    is_same = counts and mark == _mark(connection)
    meta.put(connection, meta.COMMON_WORDS, {"of": mark, "counts": counts} if is_same else None)


def common_words(connection: Connection) -> dict[str, dict[str, int]]:
    """Return table -> word, as the table has it -> chunks; empty when full text has changed since."""
    kept = meta.get(connection, meta.COMMON_WORDS)
    counts: dict[str, dict[str, int]] = kept["counts"] if kept and kept["of"] == _mark(connection) else {}
    return counts


def _mark(connection: Connection) -> str:
    _, changed = state(connection)
    return sha256(repr(changed).encode()).hexdigest()
