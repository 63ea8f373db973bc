"""The full-text index of chunks: FTS5 over the rows, so that the text is stored once.

A library without FTS5 cannot touch such a table at all. Its writer leaves it as it is and marks it stale;
the next writer that has FTS5 builds it again from the chunks, and until then nobody searches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.index import meta
from shared.index.driver import library, transaction

if TYPE_CHECKING:
    from sqlite3 import Connection

CREATE = """
CREATE VIRTUAL TABLE IF NOT EXISTS chunks_fts USING fts5 (
    text, heading, path, grams,
    content = 'chunk_documents', content_rowid = 'id',
    tokenize = 'porter unicode61 remove_diacritics 2'
)
"""

_DOCUMENTS_OF = (
    "id, text, heading, path, grams FROM chunk_documents"
    " WHERE id IN (SELECT id FROM chunks WHERE file_id = ? AND ordinal >= ? AND ordinal < ?)"
)


def missing(connection: Connection) -> str:
    """Why there is no full-text search with this library; empty when there is."""
    try:
        found = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone()
    except library().Error as error:
        return str(error)
    return "" if found else "no such module: fts5"


class FullText:
    """Keeps the full-text index of one connection in step with its chunks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._has_module = not missing(connection)

    def forget(self, file_id: int, first: int, stop: int) -> None:
        """Take chunks of a file out while their rows are there, inside the caller's transaction.

        `first` is the ordinal of the first of them, `stop` that behind the last.
        """
        if self._is_in_step():
            # External content: FTS5 must be told the old values before they are gone.
            self._connection.execute(
                "INSERT INTO chunks_fts (chunks_fts, rowid, text, heading, path, grams)"
                f" SELECT 'delete', {_DOCUMENTS_OF}",
                (file_id, first, stop),
            )

    def add(self, file_id: int, first: int, stop: int) -> None:
        """Put chunks of a file in, inside the caller's transaction."""
        if self._is_in_step():
            self._connection.execute(
                f"INSERT INTO chunks_fts (rowid, text, heading, path, grams) SELECT {_DOCUMENTS_OF}",
                (file_id, first, stop),
            )

    def mend(self) -> None:
        """Build the index again from the chunks when a writer without FTS5 has marked it stale."""
        if self._has_module and meta.get(self._connection, meta.FTS_STALE):
            with transaction(self._connection):
                self._connection.execute(CREATE)
                self._connection.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")
                meta.put(self._connection, meta.FTS_STALE, None)
                meta.bump(self._connection)

    def _is_in_step(self) -> bool:
        if self._has_module and not meta.get(self._connection, meta.FTS_STALE):
            return True
        meta.put(self._connection, meta.FTS_STALE, True)
        return False
