"""Chunks of files and their full-text rows: replaced as a whole, a file a transaction."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.index import ledger, transcripts
from shared.index.fts import FullText
from shared.index.rows import FileRow
from shared.sources import outcomes
from shared.sources.tokens import DENSE
from shared.sources.transcript_names import SESSIONS

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.index.ledger import LedgerEntry

#: Nanoseconds by which an older message can be late. A row that is further ahead of a new look was written
#: by a clock that has since been put back: it must not freeze the file until the clock catches up.
MAX_CLOCK_STEP_NS = 600 * 10**9

#: Behind the last ordinal of any file.
_ALL = 1 << 62

_DENSE_RUN = re.compile(f"[{DENSE}]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What storing a file did: how it compares with the row before, and which texts came and went."""

    #: added, changed, removed, unchanged, refused (kept out of the index), late (an older look, or a part
    #: that continues what is not there; ignored) or unknown (said to be unchanged, or to continue what is
    #: there, but the ledger has other content; ignored, to be looked at again).
    change: str
    #: text hash -> text, of all chunks the file has now; empty unless its chunks were replaced.
    texts: dict[bytes, str] = field(default_factory=dict)
    #: Text hashes that no chunk of any file has any more.
    orphans: list[bytes] = field(default_factory=list)


def text_hash(text: str) -> bytes:
    """SHA-256 (32 bytes) of the exact text that is embedded."""
    return hashlib.sha256(text.encode()).digest()


def grams(text: str) -> str:
    """The overlapping pairs of every run of characters written without spaces, for full-text search.

    unicode61 makes one token of such a run, so a word inside it is never found. A run c1..cn gives
    c1c2, c2c3, …, and cn alone: any part of it of two characters or more is a sequence of whole tokens,
    and any single character is the beginning of one.
    """
    if text.isascii():
        return ""
    pairs: list[str] = []
    for run in _DENSE_RUN.findall(text.casefold()):
        pairs.extend(run[i : i + 2] for i in range(len(run)))
    return " ".join(pairs)


def apply_file(connection: Connection, full_text: FullText, row: FileRow) -> Replaced:
    """Make the index agree with `row`, inside the caller's transaction.

    Safe twice, late and out of order: a row that was observed no later than the one in the ledger changes
    nothing, so the newest look at the file always stays. A row that continues a file counts only on top of
    the very bytes it continues.
    """
    before = ledger.entry(connection, row.path)
    if before is not None and row.observed_ns <= before.observed_ns <= row.observed_ns + MAX_CLOCK_STEP_NS:
        return Replaced(change="late")
    existed = before is not None and before.outcome != ledger.REMOVED
    if row.chunks is None:
        known = before and (before.outcome, before.hash, before.chunking)
        if known != (row.outcome, row.hash, row.chunking):
            # The ledger moved on while the worker compared with it: what it left out is missing here.
            return Replaced(change="unknown")
        ledger.touch(connection, row)
        return Replaced(change="unchanged")
    if row.base and not _continues(connection, before, row):
        # One more look is asked for all parts of this one: asked for by each, looks would breed looks.
        return Replaced(change="late" if row.is_partial else "unknown")
    file_id = ledger.record(connection, row)
    if row.source == SESSIONS:
        transcripts.save(connection, file_id, row.progress)
    texts, orphans = _replace_chunks(connection, full_text, file_id, row)
    if row.outcome == ledger.REMOVED:
        # Also for a file that came and went unseen: the row tells that somebody looked.
        change = "removed" if existed else "unchanged"
    elif row.outcome != outcomes.INDEXED:
        change = "refused" if row.outcome != outcomes.EMPTY else ("changed" if existed else "added")
    else:
        change = "changed" if existed else "added"
    return Replaced(change=change, texts=texts, orphans=orphans)


def _continues(connection: Connection, before: LedgerEntry | None, row: FileRow) -> bool:
    """Whether the ledger has what `row` builds on: the same bytes, cut in the same way, up to its chunks."""
    if before is None or (before.hash, before.chunking) != (row.base, row.chunking):
        return False
    count = connection.execute(
        "SELECT count(*) FROM chunks WHERE file_id = (SELECT id FROM files WHERE path = ?) AND ordinal < ?",
        (row.path, row.keeps),
    )
    return bool(count.fetchone()[0] == row.keeps)


def _replace_chunks(
    connection: Connection, full_text: FullText, file_id: int, row: FileRow
) -> tuple[dict[bytes, str], list[bytes]]:
    chunks = row.chunks or ()
    first = row.keeps
    stop = first + len(chunks) if row.is_partial else _ALL
    old = {
        found[0]
        for found in connection.execute(
            "SELECT text_hash FROM chunks WHERE file_id = ? AND ordinal >= ? AND ordinal < ?",
            (file_id, first, stop),
        )
    }
    if old:
        full_text.forget(file_id, first, stop)
        connection.execute(
            "DELETE FROM chunks WHERE file_id = ? AND ordinal >= ? AND ordinal < ?", (file_id, first, stop)
        )
    texts = {text_hash(chunk.text): chunk.text for chunk in chunks}
    if chunks:
        connection.executemany(
            "INSERT INTO chunks (file_id, ordinal, start_line, end_line, heading, text, grams, text_hash)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    file_id,
                    ordinal,
                    chunk.start_line,
                    chunk.end_line,
                    chunk.heading,
                    chunk.text,
                    grams(f"{chunk.heading}\n{chunk.text}"),
                    text_hash(chunk.text),
                )
                for ordinal, chunk in enumerate(chunks, first)
            ),
        )
        full_text.add(file_id, first, stop)
    gone = [digest for digest in old if digest not in texts]
    orphans = [
        digest
        for digest in gone
        if connection.execute("SELECT 1 FROM chunks WHERE text_hash = ? LIMIT 1", (digest,)).fetchone()
        is None
    ]
    return texts, orphans


def count(connection: Connection) -> int:
    """Number of chunks."""
    return int(connection.execute("SELECT count(*) FROM chunks").fetchone()[0])
