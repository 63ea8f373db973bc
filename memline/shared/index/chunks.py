"""Store the chunks of files, and their names as short documents, with the full text of both: FTS5.

Full text has no content of its own: what is searched is folded text, which is made of the rows again when
they go.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import sha256
from sqlite3 import Connection
from typing import NamedTuple

import msgspec

from memline.shared.index import ledger
from memline.shared.index.driver import json_ids, scalar
from memline.shared.index.rows import Chunk, FileRow
from memline.shared.note_names import fold, name_key, path_key, stem_key
from memline.shared.sources import outcomes
from memline.shared.sources.markdown import outline, sections_of
from memline.shared.sources.paths import MEMORY, SESSIONS
from memline.shared.sources.tokens import grams

#: Nanoseconds by which an older message can be late. A row that is further ahead of a new read was written
#: by a clock that has since been set back: it must not freeze the file until the clock catches up.
MAX_CLOCK_STEP_NS = 600 * 10**9

#: Pages of full text that one transaction merges: some hundredths of a second.
_MERGED_PAGES = 500

_COLUMNS = {"chunks": "text, heading, path, grams", "names": "text, grams"}
FULL_TEXT = ("chunks_fts", "names_fts")


class Document(NamedTuple):
    """A row of full text."""

    #: chunks or names.
    table: str
    row_id: int
    columns: tuple[str, ...]


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """How a stored file compares with its row before, and which texts were added and removed."""

    #: stored, unchanged, late (read earlier than the row; ignored) or unknown (compared with content that the
    #: ledger has no longer; ignored, to be read again).
    kind: str
    #: text hash -> text of the file's chunks; of a session that has grown, of the new ones.
    texts: dict[bytes, str] = {}
    #: Text hashes that no chunk of any file has any more.
    orphans: list[bytes] = []
    #: What full text lacks until `write_full_text`.
    documents: list[Document] = []


def text_hash(text: str) -> bytes:
    """Return the SHA-256 (32 bytes) of the exact text that is embedded."""
    return sha256(text.encode()).digest()


def apply_file(connection: Connection, row: FileRow) -> FileChange:
    """Make the index agree with `row`, inside the caller's transaction that ends with `write_full_text`.

    Safe twice, late and out of order: a row that was observed no later than the one in the ledger changes
    nothing, so the newest read of the file always stays.
    """
    before = ledger.entry(connection, row.path)
    if before is not None and row.observed_ns <= before.observed_ns <= row.observed_ns + MAX_CLOCK_STEP_NS:
        return FileChange(kind="late")
    if row.chunks is None:
        recorded = before and (before.outcome, before.hash, before.chunking)
        if recorded != (row.outcome, row.hash, row.chunking):
            # The ledger changed while the worker compared with it: what it left out is missing here.
            return FileChange(kind="unknown")
        ledger.touch(connection, row)
        return FileChange(kind="unchanged")
    file_id = ledger.record(connection, row)
    texts, orphans, documents = _replace_chunks(connection, file_id, row)
    # A file that was made and removed between two scans has a row as well, which tells that it was read.
    is_new = row.outcome != ledger.REMOVED or (before is not None and before.outcome != ledger.REMOVED)
    kind = "stored" if is_new else "unchanged"
    return FileChange(kind=kind, texts=texts, orphans=orphans, documents=documents)


def _replace_chunks(
    connection: Connection, file_id: int, row: FileRow
) -> tuple[dict[bytes, str], list[bytes], list[Document]]:
    """Store the chunks of a file; those that did not change keep their rows, wherever they stand now."""
    chunks = [(text_hash(chunk.text), chunk) for chunk in row.chunks or ()]
    before: defaultdict[tuple[bytes, str], list[tuple[int, ...]]] = defaultdict(list)
    for digest, heading, *place in connection.execute(
        "SELECT text_hash, heading, id, ordinal, start_line, end_line FROM chunks WHERE file_id = ?"
        " ORDER BY ordinal DESC",
        (file_id,),
    ):
        before[digest, heading].append(tuple(place))
    new, moved = dict[int, tuple[bytes, Chunk]](), list[tuple[int, ...]]()
    for ordinal, (digest, chunk) in enumerate(chunks):
        if same := before[digest, chunk.heading]:
            row_id, *place = same.pop()
            if place != [ordinal, chunk.start_line, chunk.end_line]:
                moved.append((ordinal, chunk.start_line, chunk.end_line, row_id))
        else:
            new[ordinal] = digest, chunk
    gone = json_ids(row_id for same in before.values() for row_id, *_ in same)
    if not (new or moved) and gone == "[]":
        return {digest: chunk.text for digest, chunk in chunks}, [], []
    listed = "WHERE id IN (SELECT value FROM json_each(?))"
    rows = connection.execute(f"SELECT id, heading, text FROM chunks {listed}", (gone,))
    write_full_text(connection, [_document(row.path, *each) for each in rows], removes=True)
    connection.execute(f"DELETE FROM chunks {listed}", (gone,))
    change = "UPDATE chunks SET ordinal = ?, start_line = ?, end_line = ? WHERE id = ?"
    connection.executemany(change, moved)
    connection.executemany(
        "INSERT INTO chunks (file_id, ordinal, start_line, end_line, heading, text, text_hash)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (file_id, ordinal, chunk.start_line, chunk.end_line, chunk.heading, chunk.text, digest)
            for ordinal, (digest, chunk) in new.items()
        ),
    )
    query = "SELECT id, heading, text, ordinal FROM chunks WHERE file_id = ? AND ordinal >= ?"
    rows = connection.execute(query, (file_id, min(new, default=len(chunks))))
    documents = [_document(row.path, *each) for *each, ordinal in rows if ordinal in new]
    documents += _replace_names(connection, file_id, row)
    _replace_tags_and_links(connection, file_id, row)
    wanted = new.values() if row.source == SESSIONS and new else chunks
    texts = {digest: chunk.text for digest, chunk in wanted}
    used = "SELECT 1 FROM chunks WHERE text_hash = ? LIMIT 1"
    removed = (digest for (digest, _), same in before.items() if same)
    return texts, [digest for digest in removed if not scalar(connection, used, digest)], documents


def _document(path: str, row_id: int, heading: str, text: str) -> Document:
    """Make the document of a chunk: its text, the headings above and in it, its path, pairs of characters."""
    text, above, name = fold(text), heading.split(" > "), ""
    inside = [title for title in sections_of(text) if title not in above]
    if not path.isascii():
        path, name = path_key(path), fold(path.rpartition("/")[2])
    pairs = grams(f"{fold(heading)}\n{text}\n{name}")
    return Document("chunks", row_id, (text, fold(" > ".join((*above, *inside))), path, pairs))


def sessions_in(source: Connection) -> Iterator[FileRow]:
    """Yield the sessions of an index, to be read again where their transcript is still there."""
    columns = "path, source, outcome, mtime_ns, observed_ns, chunking, lines, first_day, last_day"
    query = f"SELECT id, {columns} FROM files WHERE source = ? AND outcome = ?"
    parts = "start_line, end_line, heading, text"
    for file_id, *row in source.execute(query, (SESSIONS, outcomes.INDEXED)).fetchall():
        chunks = source.execute(f"SELECT {parts} FROM chunks WHERE file_id = ? ORDER BY ordinal", (file_id,))
        yield FileRow(
            **dict(zip(columns.split(", "), row, strict=True)),
            chunks=tuple(Chunk(**dict(zip(parts.split(", "), each, strict=True))) for each in chunks),
        )


def count(connection: Connection) -> int:
    """Count the chunks."""
    return int(scalar(connection, "SELECT count(*) FROM chunks"))


def _replace_names(connection: Connection, file_id: int, row: FileRow) -> list[Document]:
    """Store the names of a file and return their documents; a file without chunks has none."""
    query = "SELECT id, key, title FROM names WHERE file_id = ? ORDER BY id"
    names = _of_names(row.path, connection.execute(query, (file_id,)).fetchall())
    write_full_text(connection, names, removes=True)
    connection.execute("DELETE FROM names WHERE file_id = ?", (file_id,))
    connection.executemany(
        "INSERT INTO names (file_id, key, title) VALUES (?, ?, ?)",
        ((file_id, key, title) for key, title in _names(row)),
    )
    return _of_names(row.path, connection.execute(query, (file_id,)).fetchall())


def _names(row: FileRow) -> Iterator[tuple[str, str]]:
    """Yield the names of a file as keys: of its file with the title as written, of the title, its aliases."""
    if not row.chunks:
        return
    headings = outline(row.chunks[0].text.split("\n")).headings if row.source == MEMORY else ()
    title = next((each.title for each in headings if each.title), "")
    first = stem_key(row.path)
    yield first, title
    others = dict.fromkeys((name_key(title), *row.names.split("\n")))
    yield from ((key, "") for key in others if key not in ("", first))


def _of_names(path: str, names: Sequence[tuple[int, str, str]]) -> list[Document]:
    """Make the documents of names: of the file and its title as one, of each alias."""
    if not names:
        return []
    (first, _, title), *others = names
    stem = os.path.splitext(path.rpartition("/")[2])[0]
    texts = {first: f"{stem} {title or stem}"}
    texts |= {row_id: key for row_id, key, _ in others if key != name_key(title)}
    return [Document("names", row_id, (fold(text), grams(fold(text)))) for row_id, text in texts.items()]


def _replace_tags_and_links(connection: Connection, file_id: int, row: FileRow) -> None:
    for table in ("tags", "links"):
        connection.execute(f"DELETE FROM {table} WHERE file_id = ?", (file_id,))
    if not row.chunks:
        return
    connection.executemany(
        "INSERT OR IGNORE INTO tags (file_id, tag) VALUES (?, ?)",
        ((file_id, tag) for tag in row.tags.split("\n") if tag),
    )
    connection.executemany(
        "INSERT INTO links (file_id, ordinal, line, target, is_path, key) VALUES (?, ?, ?, ?, ?, ?)",
        (
            (file_id, ordinal, each.line, each.target, each.is_path, each.key)
            for ordinal, each in enumerate(row.links)
        ),
    )


def write_full_text(connection: Connection, documents: Sequence[Document], *, removes: bool = False) -> None:
    """Add documents to full text, or remove them; FTS5 must be told what those were which it removes.

    New ones are added last in the caller's transaction, and before a file comes again: FTS5 writes what it
    has gathered before each statement that SQLite may have to undo alone; file by file took twice as long.
    """
    for table, columns in _COLUMNS.items():
        command, word = (f"{table}_fts, ", "'delete', ") if removes else ("", "")
        marks = ", ?" * len(columns.split())
        connection.executemany(
            f"INSERT INTO {table}_fts ({command}rowid, {columns}) VALUES ({word}?{marks})",
            ((each.row_id, *each.columns) for each in documents if each.table == table),
        )


def merge_full_text(connection: Connection) -> None:
    """Merge segments of one size where there are four, in short transactions: a search looks in each."""
    for table in FULL_TEXT:
        # FTS5 changes one row at most when it is done.
        changes = 2
        while changes > 1:
            before = connection.total_changes
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', {_MERGED_PAGES})")
            changes = connection.total_changes - before
