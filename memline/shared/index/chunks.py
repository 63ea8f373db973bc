"""Store the chunks of files with their full-text rows.

Full text is FTS5 over the chunk rows, so that the text is stored once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memline.shared.digests import sha256
from memline.shared.index import forgotten, ledger, meta, names
from memline.shared.sources import outcomes
from memline.shared.sources.folding import fold, folded
from memline.shared.sources.paths import SESSIONS
from memline.shared.sources.tokens import grams
from memline.shared.values import field, replace, value

if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.index.ledger import LedgerEntry
    from memline.shared.index.rows import FileRow

#: Nanoseconds by which an older message can be late. A row that is further ahead of a new read was written
#: by a clock that has since been set back: it must not freeze the file until the clock catches up.
MAX_CLOCK_STEP_NS = 600 * 10**9

#: After the last ordinal of any file.
_ALL = 1 << 62

#: How FTS5 makes words of a text, here and in `schema.sql`.
TOKENIZER = "porter unicode61 remove_diacritics 2"

#: Indexes of the documents, and their columns: by stems, and the words as typed.
_FULL_TEXT = {"chunks_fts": "text, heading, path, grams", "forms_fts": "text, heading, path"}

_DOCUMENTS_OF = (
    "FROM chunk_documents"
    " WHERE id IN (SELECT id FROM chunks WHERE file_id = ? AND ordinal >= ? AND ordinal < ?)"
)


@value
class FileChange:
    """How a stored file compares with its row before, and which texts were added and removed."""

    #: added, changed, removed, unchanged, refused (kept out of the index), late (read earlier than the row,
    #: or a part that continues what is not there; ignored) or unknown (compared with content that the ledger
    #: has no longer; ignored, to be read again).
    kind: str
    #: text hash -> text, of all chunks the file has now; empty unless its chunks were replaced.
    texts: dict[bytes, str] = field(default_factory=dict)
    #: Text hashes that no chunk of any file has any more.
    orphans: list[bytes] = field(default_factory=list)


def text_hash(text: str) -> bytes:
    """Return the SHA-256 (32 bytes) of the exact text that is embedded."""
    return sha256(text.encode()).digest()


def apply_file(connection: Connection, row: FileRow) -> FileChange:
    """Make the index agree with `row`, inside the caller's transaction.

    Safe twice, late and out of order: a row that was observed no later than the one in the ledger changes
    nothing, so the newest read of the file always stays. A row that continues a file counts only on top of
    the very bytes it continues.
    """
    before = ledger.entry(connection, row.path)
    if before is not None and row.observed_ns <= before.observed_ns <= row.observed_ns + MAX_CLOCK_STEP_NS:
        return FileChange(kind="late")
    existed = before is not None and before.outcome != ledger.REMOVED
    if row.chunks is None:
        recorded = before and (before.outcome, before.hash, before.chunking)
        if recorded != (row.outcome, row.hash, row.chunking):
            # The ledger changed while the worker compared with it: what it left out is missing here.
            return FileChange(kind="unknown")
        ledger.touch(connection, row)
        return FileChange(kind="unchanged")
    if row.base and not _continues(connection, before, row):
        # One more read is enqueued for all parts of this one: enqueued by each, reads would multiply.
        return FileChange(kind="late" if row.is_partial else "unknown")
    if row.chunks and (gone := forgotten.texts_of(connection, row.path)):
        # Read before a part of the file was forgotten, and looked at again since.
        row = replace(row, chunks=tuple(each for each in row.chunks if text_hash(each.text) not in gone))
    file_id = ledger.record(connection, row)
    if row.source == SESSIONS:
        ledger.save_progress(connection, file_id, row.progress)
    texts, orphans = _replace_chunks(connection, file_id, row)
    if row.outcome == ledger.REMOVED:
        # Also for a file that was made and removed between two scans: the row tells that it was read.
        kind = "removed" if existed else "unchanged"
    elif row.outcome in (outcomes.INDEXED, outcomes.EMPTY):
        kind = "changed" if existed else "added"
    else:
        kind = "refused"
    return FileChange(kind=kind, texts=texts, orphans=orphans)


def _continues(connection: Connection, before: LedgerEntry | None, row: FileRow) -> bool:
    """Tell whether the ledger has what `row` builds on: the same bytes, cut alike, up to its chunks."""
    if before is None or (before.hash, before.chunking) != (row.base, row.chunking):
        return False
    kept = "SELECT count(*) FROM chunks WHERE file_id = (SELECT id FROM files WHERE path = ?) AND ordinal < ?"
    return bool(connection.execute(kept, (row.path, row.keeps)).fetchone()[0] == row.keeps)


def _replace_chunks(
    connection: Connection, file_id: int, row: FileRow
) -> tuple[dict[bytes, str], list[bytes]]:
    chunks = row.chunks or ()
    first = row.keeps
    stop = first + len(chunks) if row.is_partial else _ALL
    where, span = "file_id = ? AND ordinal >= ? AND ordinal < ?", (file_id, first, stop)
    old = {digest for (digest,) in connection.execute(f"SELECT text_hash FROM chunks WHERE {where}", span)}
    if old:
        remove_full_text(connection, *span)
        connection.execute(f"DELETE FROM chunks WHERE {where}", span)
    texts = {text_hash(chunk.text): chunk.text for chunk in chunks}
    if chunks:
        connection.executemany(
            "INSERT INTO chunks (file_id, ordinal, start_line, end_line, heading, text,"
            " folded_heading, folded, grams, text_hash)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    file_id,
                    ordinal,
                    chunk.start_line,
                    chunk.end_line,
                    chunk.heading,
                    chunk.text,
                    folded(chunk.heading),
                    folded(chunk.text),
                    grams(fold(f"{chunk.heading}\n{chunk.text}")),
                    text_hash(chunk.text),
                )
                for ordinal, chunk in enumerate(chunks, first)
            ),
        )
        for table, columns in _FULL_TEXT.items():
            connection.execute(
                f"INSERT INTO {table} (rowid, {columns}) SELECT id, {columns} {_DOCUMENTS_OF}", span
            )
        if first == 0:
            names.store(connection, file_id, row.path, row.source, row.names, chunks[0].text)
    still_used = "SELECT 1 FROM chunks WHERE text_hash = ? LIMIT 1"
    removed = [digest for digest in old if digest not in texts]
    orphans = [digest for digest in removed if not connection.execute(still_used, (digest,)).fetchone()]
    return texts, orphans


def count(connection: Connection) -> int:
    """Count the chunks."""
    return int(connection.execute("SELECT count(*) FROM chunks").fetchone()[0])


def remove_full_text(connection: Connection, file_id: int, first: int, stop: int) -> None:
    """Remove chunks of a file from full text while their rows are there, inside the caller's transaction.

    `first` is the ordinal of the first of them, `stop` the one after the last.
    """
    # External content: FTS5 must be told the old values before they are gone.
    for table, columns in _FULL_TEXT.items():
        connection.execute(
            f"INSERT INTO {table} ({table}, rowid, {columns}) SELECT 'delete', id, {columns} {_DOCUMENTS_OF}",
            (file_id, first, stop),
        )


def merge_full_text(connection: Connection) -> None:
    """Merge all segments of full text: deleted words stay in them until then."""
    for table in (*_FULL_TEXT, "names_fts"):
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def full_text_state(connection: Connection) -> object:
    """Return a value that differs whenever the full-text index does.

    Every transaction that writes to it adds the pages it wrote to a counter in the record of its structure;
    another index in the place of this one has another epoch.
    """
    return meta.get(connection, meta.EPOCH), connection.execute(
        "SELECT block FROM chunks_fts_data WHERE id IN (1, 10)"
    ).fetchall()
