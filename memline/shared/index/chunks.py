"""Store the chunks of files, and their names as short documents, with the full text of both."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

from memline.shared.digests import sha256
from memline.shared.index import full_text, ledger
from memline.shared.index.driver import json_ids
from memline.shared.index.full_text import Document
from memline.shared.index.rows import Chunk, FileRow
from memline.shared.sources import outcomes
from memline.shared.sources.folding import fold, name_key, path_key, stem_key
from memline.shared.sources.markdown import outline, sections_of
from memline.shared.sources.paths import MEMORY, SESSIONS
from memline.shared.sources.tokens import grams
from memline.shared.values import field, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: Nanoseconds by which an older message can be late. A row that is further ahead of a new read was written
#: by a clock that has since been set back: it must not freeze the file until the clock catches up.
MAX_CLOCK_STEP_NS = 600 * 10**9


@value
class FileChange:
    """How a stored file compares with its row before, and which texts were added and removed."""

    #: added, changed, removed, unchanged, refused (kept out of the index), late (read earlier than the row;
    #: ignored) or unknown (compared with content that the ledger has no longer; ignored, to be read again).
    kind: str
    #: text hash -> text of the file's chunks; of a session that has grown, of the new ones.
    texts: dict[bytes, str] = field(default_factory=dict)
    #: Text hashes that no chunk of any file has any more.
    orphans: list[bytes] = field(default_factory=list)
    #: What full text lacks until `full_text.add`.
    documents: list[Document] = field(default_factory=list)


def text_hash(text: str) -> bytes:
    """Return the SHA-256 (32 bytes) of the exact text that is embedded."""
    return sha256(text.encode()).digest()


def apply_file(connection: Connection, row: FileRow) -> FileChange:
    """Make the index agree with `row`, inside the caller's transaction.

    What it added is put into full text by `full_text.add`, before the same file is applied again.

    Safe twice, late and out of order: a row that was observed no later than the one in the ledger changes
    nothing, so the newest read of the file always stays.
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
    file_id = ledger.record(connection, row)
    if row.source == SESSIONS:
        ledger.save_facts(connection, file_id, row.transcript)
    texts, orphans, documents = _replace_chunks(connection, file_id, row)
    if row.outcome == ledger.REMOVED:
        # Also for a file that was made and removed between two scans: the row tells that it was read.
        kind = "removed" if existed else "unchanged"
    elif row.outcome in (outcomes.INDEXED, outcomes.EMPTY):
        kind = "changed" if existed else "added"
    else:
        kind = "refused"
    return FileChange(kind=kind, texts=texts, orphans=orphans, documents=documents)


def _replace_chunks(
    connection: Connection, file_id: int, row: FileRow
) -> tuple[dict[bytes, str], list[bytes], list[Document]]:
    """Store the chunks of a file; those that did not change keep their rows, wherever they stand now."""
    chunks = [(text_hash(chunk.text), chunk) for chunk in row.chunks or ()]
    texts = {digest: chunk.text for digest, chunk in chunks}
    stored = connection.execute(
        "SELECT text_hash, heading, id, ordinal, start_line, end_line FROM chunks WHERE file_id = ?"
        " ORDER BY ordinal DESC",
        (file_id,),
    )
    before: defaultdict[tuple[bytes, str], list[tuple[int, ...]]] = defaultdict(list)
    for digest, heading, *place in stored:
        before[digest, heading].append(tuple(place))
    new, moved = dict[int, tuple[bytes, Chunk]](), list[tuple[int, ...]]()
    for ordinal, (digest, chunk) in enumerate(chunks):
        if same := before[digest, chunk.heading]:
            row_id, *place = same.pop()
            if place != [ordinal, chunk.start_line, chunk.end_line]:
                moved.append((ordinal, chunk.start_line, chunk.end_line, row_id))
        else:
            new[ordinal] = digest, chunk
    gone = [row_id for same in before.values() for row_id, *_ in same]
    if not (new or gone or moved):
        return texts, [], []
    full_text.remove(connection, "chunks", gone)
    connection.execute("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(?))", (json_ids(gone),))
    connection.executemany("UPDATE chunks SET ordinal = ?, start_line = ?, end_line = ? WHERE id = ?", moved)
    connection.executemany(
        "INSERT INTO chunks (file_id, ordinal, start_line, end_line, heading, text, text_hash)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (file_id, ordinal, chunk.start_line, chunk.end_line, chunk.heading, chunk.text, digest)
            for ordinal, (digest, chunk) in new.items()
        ),
    )
    documents = _documents(connection, file_id, row.path, {at: chunk for at, (_, chunk) in new.items()})
    documents += _replace_names(connection, file_id, row)
    _replace_tags_and_links(connection, file_id, row)
    if row.source == SESSIONS and new:
        texts = {digest: chunk.text for digest, chunk in new.values()}
    orphans = [digest for (digest, _), same in before.items() if same and not _is_used(connection, digest)]
    return texts, orphans, documents


def _is_used(connection: Connection, digest: bytes) -> bool:
    query = "SELECT 1 FROM chunks WHERE text_hash = ? LIMIT 1"
    return connection.execute(query, (digest,)).fetchone() is not None


def _documents(connection: Connection, file_id: int, path: str, new: dict[int, Chunk]) -> list[Document]:
    """Make the documents of new chunks, by their ordinals."""
    if not new:
        return []
    query = "SELECT ordinal, id FROM chunks WHERE file_id = ? AND ordinal >= ?"
    row_id = dict(connection.execute(query, (file_id, min(new))))
    searched_path = path if path.isascii() else path_key(path)
    name = "" if path.isascii() else path.rpartition("/")[2]
    made = []
    for ordinal, chunk in new.items():
        text, heading = fold(chunk.text), _searched_heading(chunk)
        pairs = grams(f"{fold(chunk.heading)}\n{text}\n{fold(name)}")
        made.append(Document("chunks", (row_id[ordinal], text, heading, searched_path, pairs)))
    return made


def _searched_heading(chunk: Chunk) -> str:
    """Return the headings above a chunk and in it, as they are compared."""
    above = chunk.heading.split(" > ")
    inside = [title for title in sections_of(chunk.text) if title not in above]
    return fold(" > ".join((*above, *inside)))


def count(connection: Connection) -> int:
    """Count the chunks."""
    return int(connection.execute("SELECT count(*) FROM chunks").fetchone()[0])


def _replace_names(connection: Connection, file_id: int, row: FileRow) -> list[Document]:
    """Store the names of a file and return their documents; a file without chunks has none."""
    old = connection.execute("SELECT id FROM names WHERE file_id = ?", (file_id,)).fetchall()
    full_text.remove(connection, "names", [name_id for (name_id,) in old])
    connection.execute("DELETE FROM names WHERE file_id = ?", (file_id,))
    documents = []
    for key, title, text in _named(row) if row.chunks else ():
        name_id = connection.execute(
            "INSERT INTO names (file_id, key, title) VALUES (?, ?, ?) RETURNING id", (file_id, key, title)
        ).fetchone()[0]
        if text:
            searched = fold(text)
            documents.append(Document("names", (name_id, searched, grams(searched))))
    return documents


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


def _named(row: FileRow) -> Iterator[tuple[str, str, str]]:
    """Yield the key of each name, the title as written, and what is searched, which may be empty."""
    first: Sequence[Chunk] = row.chunks or ()
    headings = outline(first[0].text.split("\n")).headings if row.source == MEMORY else ()
    title = next((each.title for each in headings if each.title), "")
    stem = os.path.splitext(row.path.rpartition("/")[2])[0]
    key = stem_key(row.path)
    yield key, title, f"{stem} {title or stem}"
    known = {key}
    if title and (key := name_key(title)) not in known:
        known.add(key)
        yield key, "", ""
    for key in filter(None, row.names.split("\n")):
        if key not in known:
            yield key, "", key
