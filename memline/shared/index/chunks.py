"""Store the chunks of files, and their names as short documents, with the rows of both in full text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from memline.shared.digests import sha256
from memline.shared.index import full_text, ledger
from memline.shared.sources import outcomes
from memline.shared.sources.folding import fold, folded, name_key, stem_key
from memline.shared.sources.markdown import outline, sections_of
from memline.shared.sources.paths import MEMORY, SESSIONS
from memline.shared.sources.tokens import grams
from memline.shared.values import field, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.index.rows import Chunk, FileRow
    from memline.shared.sources.links import Link

#: Nanoseconds by which an older message can be late. A row that is further ahead of a new read was written
#: by a clock that has since been set back: it must not freeze the file until the clock catches up.
MAX_CLOCK_STEP_NS = 600 * 10**9

#: After the last ordinal of any file.
_ALL = 1 << 62


@value
class FileChange:
    """How a stored file compares with its row before, and which texts were added and removed."""

    #: added, changed, removed, unchanged, refused (kept out of the index), late (read earlier than the row;
    #: ignored) or unknown (compared with content that the ledger has no longer; ignored, to be read again).
    kind: str
    #: text hash -> text, of all chunks the file has now; empty unless its chunks were replaced.
    texts: dict[bytes, str] = field(default_factory=dict)
    #: Text hashes that no chunk of any file has any more.
    orphans: list[bytes] = field(default_factory=list)
    #: Ids of chunks that full text lacks until `full_text.add`.
    added: list[int] = field(default_factory=list)


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
    texts, orphans, added = _replace_chunks(connection, file_id, row)
    if row.outcome == ledger.REMOVED:
        # Also for a file that was made and removed between two scans: the row tells that it was read.
        kind = "removed" if existed else "unchanged"
    elif row.outcome in (outcomes.INDEXED, outcomes.EMPTY):
        kind = "changed" if existed else "added"
    else:
        kind = "refused"
    return FileChange(kind=kind, texts=texts, orphans=orphans, added=added)


def _same_at_first(connection: Connection, file_id: int, chunks: Sequence[Chunk], hashes: list[bytes]) -> int:
    """Count the chunks from the first on that are stored as they are."""
    rows = connection.execute(
        "SELECT start_line, end_line, heading, text_hash FROM chunks WHERE file_id = ? ORDER BY ordinal",
        (file_id,),
    )
    same = 0
    for old, chunk, digest in zip(rows, chunks, hashes, strict=False):
        if tuple(old) != (chunk.start_line, chunk.end_line, chunk.heading, digest):
            break
        same += 1
    return same


def _replace_chunks(
    connection: Connection, file_id: int, row: FileRow
) -> tuple[dict[bytes, str], list[bytes], list[int]]:
    chunks = row.chunks or ()
    hashes = [text_hash(chunk.text) for chunk in chunks]
    # A session grows at its end: what it had keeps its rows.
    first = _same_at_first(connection, file_id, chunks, hashes) if row.source == SESSIONS else 0
    chunks, hashes = chunks[first:], hashes[first:]
    where, span = "file_id = ? AND ordinal >= ?", (file_id, first)
    old = {digest for (digest,) in connection.execute(f"SELECT text_hash FROM chunks WHERE {where}", span)}
    if old:
        full_text.remove(connection, file_id, first, _ALL)
        connection.execute(f"DELETE FROM chunks WHERE {where}", span)
    texts = {digest: chunk.text for digest, chunk in zip(hashes, chunks, strict=True)}
    added: list[int] = []
    name = "" if row.path.isascii() else row.path.rpartition("/")[2]
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
                    _searched_heading(chunk),
                    folded(chunk.text),
                    grams(fold(f"{chunk.heading}\n{chunk.text}\n{name}")),
                    digest,
                )
                for ordinal, (digest, chunk) in enumerate(zip(hashes, chunks, strict=True), first)
            ),
        )
        added = [row_id for (row_id,) in connection.execute(f"SELECT id FROM chunks WHERE {where}", span)]
        if first == 0:
            store_names(connection, file_id, row.path, row.source, row.names, chunks[0].text)
            if row.tags:
                store_tags(connection, file_id, row.tags)
            if row.links:
                store_links(connection, file_id, row.links)
    removed = [digest for digest in old if digest not in texts]
    still_used = "SELECT 1 FROM chunks WHERE text_hash = ? LIMIT 1"
    orphans = [digest for digest in removed if not connection.execute(still_used, (digest,)).fetchone()]
    return texts, orphans, added


def _searched_heading(chunk: Chunk) -> str | None:
    """Return the headings above a chunk and in it, as they are compared; None where these are `heading`."""
    above = chunk.heading.split(" > ")
    inside = [title for title in sections_of(chunk.text) if title not in above]
    return fold(" > ".join((*above, *inside))) if inside else folded(chunk.heading)


def count(connection: Connection) -> int:
    """Count the chunks."""
    return int(connection.execute("SELECT count(*) FROM chunks").fetchone()[0])


_NAME = "INSERT INTO names (file_id, key, title, text, grams) VALUES (?, ?, ?, ?, ?)"


def store_names(
    connection: Connection, file_id: int, path: str, source: str, own: str, first_text: str
) -> None:
    """Store the names of a file whose first chunk is new, inside the caller's transaction.

    `own` are title and aliases of its front matter, as the ledger keeps them.
    """
    connection.executemany(_NAME, ((file_id, *each) for each in _named(path, source, own, first_text)))


def store_tags(connection: Connection, file_id: int, tags: str) -> None:
    """Store the tags of a file, one a line, inside the caller's transaction; a chunk that goes takes them."""
    rows = ((file_id, tag) for tag in tags.split("\n") if tag)
    connection.executemany("INSERT OR IGNORE INTO tags (file_id, tag) VALUES (?, ?)", rows)


def store_links(connection: Connection, file_id: int, links: Iterable[Link]) -> None:
    """Store the links of a file, inside the caller's transaction; a chunk that goes takes them."""
    connection.executemany(
        "INSERT INTO links (file_id, ordinal, line, target, is_path, key) VALUES (?, ?, ?, ?, ?, ?)",
        (
            (file_id, ordinal, each.line, each.target, each.is_path, each.key)
            for ordinal, each in enumerate(links)
        ),
    )


def _named(path: str, source: str, own: str, first_text: str) -> Iterator[tuple[str, str, str | None, str]]:
    """Yield key, title as written, what is searched, and its pairs of CJK characters."""
    headings = outline(first_text.split("\n")).headings if source == MEMORY else ()
    title = next((each.title for each in headings if each.title), "")
    stem = os.path.splitext(path.rpartition("/")[2])[0]
    key = stem_key(path)
    yield key, title, *_searched(f"{stem} {title or stem}")
    known = {key}
    if title and (key := name_key(title)) not in known:
        # It is a part of the first row.
        known.add(key)
        yield key, "", None, ""
    for key in filter(None, own.split("\n")):
        if key not in known:
            yield key, "", *_searched(key)


def _searched(name: str) -> tuple[str, str]:
    text = fold(name)
    return text, grams(text)
