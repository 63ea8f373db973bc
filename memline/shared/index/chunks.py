"""Store the chunks of files, and their names as short documents, with the full text of both: FTS5.

Full text has no content of its own: what is searched is folded text, which is made of the rows again when
they go.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from sqlite3 import Connection
from typing import Any

import msgspec

from memline.shared.index import ledger
from memline.shared.index.driver import json_ids, scalar
from memline.shared.index.rows import Chunk, FileRow, LedgerEntry
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

#: A row of full text: the id of the chunk or name that it is of, then its columns.
Document = tuple[int | str, ...]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """How stored files compare with their rows before, and which texts were added and removed."""

    #: Of each file: stored, unchanged, late (read earlier than the row; ignored) or unknown (compared with
    #: content that the ledger has no longer; ignored, to be read again).
    kinds: list[str]
    #: text hash -> text of their chunks; of a session that has grown, of the new ones.
    texts: dict[bytes, str]
    #: Text hashes that no chunk of any file has any more.
    orphans: list[bytes]


def text_hash(text: str) -> bytes:
    """Return the SHA-256 (32 bytes) of the exact text that is embedded."""
    return sha256(text.encode()).digest()


def apply_files(connection: Connection, rows: Sequence[FileRow]) -> Changes:
    """Make the index agree with `rows`, inside the caller's transaction.

    Safe twice, late and out of order: a row that was observed no later than the one in the ledger changes
    nothing, so the newest read of a file always stays.
    """
    newest: dict[str, FileRow] = {}
    for row in rows:
        if row.path not in newest or row.observed_ns > newest[row.path].observed_ns:
            newest[row.path] = row
    kinds, files = list[str](), dict[int, FileRow]()
    for row in rows:
        before = ledger.entry(connection, row.path)
        kinds.append(_kind(before, row) if newest[row.path] is row else "late")
        if kinds[-1] in ("stored", "unchanged"):
            if row.chunks is None:
                ledger.touch(connection, row)
            else:
                files[ledger.record(connection, row)] = row
    texts, orphans, documents = _replace_chunks(connection, files)
    names = _replace_names(connection, files)
    _replace_tags_and_links(connection, files)
    # Last, and all at once: FTS5 writes what it has gathered before each statement that SQLite may have to
    # undo alone; file by file took twice as long.
    _write_full_text(connection, "chunks", documents)
    _write_full_text(connection, "names", names)
    return Changes(kinds=kinds, texts=texts, orphans=orphans)


def _kind(before: LedgerEntry | None, row: FileRow) -> str:
    if before is not None and row.observed_ns <= before.observed_ns <= row.observed_ns + MAX_CLOCK_STEP_NS:
        return "late"
    if row.chunks is None:
        recorded = before and (before.outcome, before.hash, before.chunking)
        # When the ledger changed while the worker compared with it, what it left out is missing here.
        return "unchanged" if recorded == (row.outcome, row.hash, row.chunking) else "unknown"
    # A file that was made and removed between two scans has a row as well, which tells that it was read.
    is_new = row.outcome != ledger.REMOVED or (before is not None and before.outcome != ledger.REMOVED)
    return "stored" if is_new else "unchanged"


#: To be followed by row ids of files as JSON. All files of a transaction share their statements: with a dozen
#: each they took a tenth of a first index.
_OF_FILES = "WHERE file_id IN (SELECT value FROM json_each(?))"


def _replace_chunks(
    connection: Connection, files: Mapping[int, FileRow]
) -> tuple[dict[bytes, str], list[bytes], list[Document]]:
    """Store the chunks of files; those that did not change keep their rows, wherever they stand now.

    Returns texts and orphans as `Changes` has them, and what full text lacks.
    """
    before: defaultdict[tuple[int, bytes, str], list[tuple[int, ...]]] = defaultdict(list)
    columns = "file_id, text_hash, heading, id, ordinal, start_line, end_line"
    query = f"SELECT {columns} FROM chunks {_OF_FILES} ORDER BY ordinal DESC"
    for file_id, digest, heading, *place in connection.execute(query, (json_ids(files),)):
        before[file_id, digest, heading].append(tuple(place))
    texts, moved, new = dict[bytes, str](), list[tuple[int, ...]](), list[tuple[Any, ...]]()
    for file_id, row in files.items():
        all_texts, new_texts = dict[bytes, str](), dict[bytes, str]()
        for ordinal, chunk in enumerate(row.chunks or ()):
            digest, at = text_hash(chunk.text), (ordinal, chunk.start_line, chunk.end_line)
            all_texts[digest] = chunk.text
            if same := before.get((file_id, digest, chunk.heading)):
                row_id, *place = same.pop()
                if at != (*place,):
                    moved.append((*at, row_id))
            else:
                new_texts[digest] = chunk.text
                new.append((file_id, *at, chunk.heading, chunk.text, digest))
        texts |= new_texts if row.source == SESSIONS and new_texts else all_texts
    if gone := {row_id: digest for (_, digest, _), same in before.items() for row_id, *_ in same}:
        listed, which = json_ids(gone), "WHERE chunks.id IN (SELECT value FROM json_each(?))"
        query = f"SELECT path, chunks.id, heading, text FROM chunks JOIN files ON files.id = file_id {which}"
        removed = [_document(*each) for each in connection.execute(query, (listed,))]
        _write_full_text(connection, "chunks", removed, removes=True)
        connection.execute(f"DELETE FROM chunks {which}", (listed,))
    change = "UPDATE chunks SET ordinal = ?, start_line = ?, end_line = ? WHERE id = ?"
    connection.executemany(change, moved)
    connection.executemany(
        "INSERT INTO chunks (file_id, ordinal, start_line, end_line, heading, text, text_hash)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        new,
    )
    query = f"SELECT file_id, ordinal, id FROM chunks {_OF_FILES}"
    ids = {(each, at): row_id for each, at, row_id in connection.execute(query, (json_ids(files),))}
    documents = [
        _document(files[file_id].path, ids[file_id, ordinal], heading, text)
        for file_id, ordinal, _, _, heading, text, _ in new
    ]
    used = "SELECT 1 FROM chunks WHERE text_hash = ? LIMIT 1"
    orphans = [digest for digest in {*gone.values()} if not scalar(connection, used, digest)]
    return texts, orphans, documents


def _document(path: str, row_id: int, heading: str, text: str) -> Document:
    """Make the document of a chunk: its text, the headings above and in it, its path, pairs of characters."""
    text, above, name = fold(text), heading.split(" > "), ""
    inside = [title for title in sections_of(text) if title not in above]
    if not path.isascii():
        path, name = path_key(path), fold(path.rpartition("/")[2])
    pairs = grams(f"{fold(heading)}\n{text}\n{name}")
    return row_id, text, fold(" > ".join((*above, *inside))), path, pairs


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


def _replace_names(connection: Connection, files: Mapping[int, FileRow]) -> list[Document]:
    """Store the names of files and return their documents; a file without chunks has none."""
    ids = json_ids(files)
    _write_full_text(connection, "names", _stored_names(connection, ids), removes=True)
    connection.execute(f"DELETE FROM names {_OF_FILES}", (ids,))
    connection.executemany(
        "INSERT INTO names (file_id, key, title) VALUES (?, ?, ?)",
        ((file_id, key, title) for file_id, row in files.items() for key, title in _names(row)),
    )
    return _stored_names(connection, ids)


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


def _stored_names(connection: Connection, ids: str) -> list[Document]:
    """Make the documents of names: of a file and its title as one, of each alias."""
    documents, first, first_title = list[Document](), 0, ""
    query = (
        f"SELECT file_id, path, names.id, key, title FROM names JOIN files ON files.id = file_id {_OF_FILES}"
        " ORDER BY file_id, names.id"
    )
    for file_id, path, row_id, key, title in connection.execute(query, (ids,)):
        if file_id != first:
            first, first_title = file_id, name_key(title)
            stem = os.path.splitext(path.rpartition("/")[2])[0]
            key = f"{stem} {title or stem}"
        elif key == first_title:
            continue
        documents.append((row_id, fold(key), grams(fold(key))))
    return documents


def _replace_tags_and_links(connection: Connection, files: Mapping[int, FileRow]) -> None:
    for table in ("tags", "links"):
        connection.execute(f"DELETE FROM {table} {_OF_FILES}", (json_ids(files),))
    with_text = [(file_id, row) for file_id, row in files.items() if row.chunks]
    connection.executemany(
        "INSERT OR IGNORE INTO tags (file_id, tag) VALUES (?, ?)",
        ((file_id, tag) for file_id, row in with_text for tag in row.tags.split("\n") if tag),
    )
    connection.executemany(
        "INSERT INTO links (file_id, ordinal, line, target, is_path, key) VALUES (?, ?, ?, ?, ?, ?)",
        (
            (file_id, ordinal, each.line, each.target, each.is_path, each.key)
            for file_id, row in with_text
            for ordinal, each in enumerate(row.links)
        ),
    )


def _write_full_text(
    connection: Connection, table: str, documents: Sequence[Document], *, removes: bool = False
) -> None:
    """Add documents to full text, or remove them; FTS5 must be told what those were which it removes."""
    command, word = (f"{table}_fts, ", "'delete', ") if removes else ("", "")
    columns = _COLUMNS[table]
    marks = ", ?" * len(columns.split())
    insert = f"INSERT INTO {table}_fts ({command}rowid, {columns}) VALUES ({word}?{marks})"
    connection.executemany(insert, documents)


def merge_full_text(connection: Connection) -> None:
    """Merge segments of one size where there are four, in short transactions: a search looks in each."""
    for table in FULL_TEXT:
        # FTS5 changes one row at most when it is done.
        changes = 2
        while changes > 1:
            before = connection.total_changes
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', {_MERGED_PAGES})")
            changes = connection.total_changes - before
