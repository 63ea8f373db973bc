"""Keep in how many chunks the commonest words stand: FTS5 counts them anew each time, 18 ns a chunk.

They are counted once full text was merged, and hold until it changes: questions at a million chunks take a
third less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memline.shared.digests import sha256
from memline.shared.index import chunks, driver, meta

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Chunks from which on words are counted beforehand: of fewer a word is counted in two milliseconds at most.
MANY_CHUNKS = 100_000

#: Chunks with a word from which on its count is kept.
LEAST = 20_000

_COUNTS = "SELECT term, doc FROM temp.words WHERE doc >= ?"


def store(connection: Connection) -> None:
    """Count the common words where there are many chunks, 8 s of CPU for a million; outside a transaction."""
    counts: dict[str, dict[str, int]] = {}
    mark = _mark(connection)
    if chunks.count(connection) >= MANY_CHUNKS:
        for table in chunks.FULL_TEXT:
            connection.execute(f"CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, {table}, row)")
            try:
                found = counts[table] = {}
                # One by one, so that an interrupt need not wait for all.
                for word, count in connection.execute(_COUNTS, (LEAST,)):
                    found[word] = count
            finally:
                connection.execute("DROP TABLE temp.words")
    elif meta.get(connection, meta.COMMON_WORDS) is None:
        return
    with driver.transaction(connection):
        is_same = counts and mark == _mark(connection)
        meta.put(connection, meta.COMMON_WORDS, {"of": mark, "counts": counts} if is_same else None)


def read(connection: Connection) -> dict[str, dict[str, int]]:
    """Return table -> word, as the table has it -> chunks; empty when full text has changed since."""
    kept = meta.get(connection, meta.COMMON_WORDS)
    counts: dict[str, dict[str, int]] = kept["counts"] if kept and kept["of"] == _mark(connection) else {}
    return counts


def _mark(connection: Connection) -> str:
    _, blocks = chunks.full_text_state(connection)
    return sha256(repr(blocks).encode()).hexdigest()
