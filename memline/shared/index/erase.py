"""Take every byte of a text out of an index that other processes may have open."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from memline.shared.errors import IndexFault
from memline.shared.index import accounts, batches, driver, full_text, jobs, meta, vectors
from memline.shared.index.driver import scalar, transaction

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Seconds to wait for readers of an old state before the WAL can be emptied, and between two attempts.
_TRUNCATE_S = 60.0
_ATTEMPT_EVERY_S = 0.05

#: Bytes of an index that is written anew to erase from it: about a second. A larger one relies on SQLite's
#: secure delete, but for the first time after an older release.
REWRITTEN_BYTES = 128_000_000

#: One part in so many of the time is spent on erasing.
SHARE = 20

#: Milliseconds for a reader that is about to end.
_PATIENCE_MS = 200

#: Stands where a provider's words were.
FORGOTTEN_REASON = "its words were taken out by memline forget"


def drop_vectors(connection: Connection, hashes: Sequence[bytes], now: float) -> int:
    """Delete all that was made of texts which no chunk has any more; returns how many vectors.

    Batches that hold such a text are cancelled: their files at the provider are removed with them.
    """
    gone = [
        digest
        for digest in hashes
        if not scalar(connection, "SELECT 1 FROM chunks WHERE text_hash = ? LIMIT 1", digest)
    ]
    tokens: set[str] = set()
    removed = 0
    with transaction(connection):
        for digest in gone:
            query = f"SELECT lease FROM vectors WHERE {vectors.OF_TEXT}"
            for (lease,) in connection.execute(query, (digest,)).fetchall():
                tokens.add(lease or "")
                removed += 1
            connection.execute(f"DELETE FROM vectors WHERE {vectors.OF_TEXT}", (digest,))
    for token in tokens - {""}:
        batches.request_cancel(connection, token, reason=batches.FORGOTTEN, now=now)
    return removed


def drop_errors(connection: Connection, now: float) -> None:
    """Delete the words in which providers refused texts: an error of one text may quote another."""
    with transaction(connection):
        connection.execute("UPDATE vectors SET error = '' WHERE state <> 'ready' AND error <> ''")
        connection.execute("UPDATE batches SET error = '' WHERE error <> ''")
        connection.execute("DELETE FROM batch_errors")
        meta.put(connection, meta.LOOP_ERRORS, None)
        if fallback := meta.get(connection, meta.FALLBACK):
            meta.put(connection, meta.FALLBACK, {**fallback, "reason": FORGOTTEN_REASON})


def drop_account_errors(path: Path) -> None:
    """Delete them in the account file of the home too."""
    if not path.exists():
        return
    with driver.faults(path), closing(accounts.connect(path)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        with transaction(connection):
            connection.execute("UPDATE health SET reason = ? WHERE reason <> ''", (FORGOTTEN_REASON,))
        _compact(connection)


def erase(connection: Connection) -> None:
    """Write the whole index anew without what was deleted, and empty its WAL.

    Other processes may have it open. Raises IndexFault when one reads an old state for too long.
    """
    with transaction(connection):
        full_text.merge(connection)
    full_text.store_common_words(connection)
    _compact(connection)


class Eraser:
    """Erases again and again what was deleted meanwhile, in one part of `SHARE` of the time."""

    def __init__(self) -> None:
        self._next_at = -math.inf

    def purge(self, connection: Connection, now: float) -> None:
        """Do as `purge`, unless it was done a moment ago."""
        began = time.monotonic()
        if began >= self._next_at:
            purge(connection, now)
            self._next_at = time.monotonic() + SHARE * (time.monotonic() - began)


def purge(connection: Connection, now: float) -> None:
    """Erase what was deleted from full text and from the log, if anything was; from its pages it is gone.

    Merges full text (0.1 s of CPU for 5,000 chunks), and writes an index up to `REWRITTEN_BYTES` anew. While
    a reader of an old state needs the log, that is written down, and the next time goes on. Where nothing was
    deleted full text is merged once it is in many segments and no job has files to read.
    """
    mark = meta.get(connection, meta.TO_ERASE)
    if mark is None:
        if full_text.has_many_segments(connection) and jobs.next_to_read(connection) is None:
            _merge(connection)
        return
    if mark != meta.LOG:
        _merge(connection)
        size = scalar(connection, "PRAGMA page_count") * scalar(connection, "PRAGMA page_size")
        if mark == meta.ALL or size <= REWRITTEN_BYTES:
            # A page that SQLite has split may keep a copy of a row that went to the other: seen once in 1,500
            # edits.
            connection.execute("VACUUM")
    is_held = _is_log_held(connection)
    if is_held and mark == meta.LOG:
        return
    with transaction(connection):
        meta.put(connection, meta.LOG_HELD, now if is_held else None)
        # What was deleted meanwhile is erased the next time.
        if meta.get(connection, meta.TO_ERASE) == mark:
            meta.put(connection, meta.TO_ERASE, meta.LOG if is_held else None)


def _merge(connection: Connection) -> None:
    full_text.merge_in_slices(connection)
    full_text.store_common_words(connection)


def look_again(path: Path, now: float) -> None:
    """Empty the log of an index that a reader held, where one did and has ended. Raises IndexFaults."""
    with driver.reading_if_any(path) as reader:
        was_held = reader is not None and meta.get(reader, meta.LOG_HELD) is not None
    if was_held:
        with driver.faults(path), closing(driver.open_writer(path)) as connection:
            purge(connection, now)


def _is_log_held(connection: Connection) -> bool:
    """Empty the WAL; tell whether a reader needs it. Others are not waited for."""
    timeout = scalar(connection, "PRAGMA busy_timeout")
    connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
    try:
        return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    finally:
        connection.execute(f"PRAGMA busy_timeout = {timeout}")


def _compact(connection: Connection) -> None:
    connection.execute("VACUUM")
    until = time.monotonic() + _TRUNCATE_S
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > until:
            raise IndexFault(
                "another process reads an old state of the index, so its log cannot be emptied",
                hint="end the other process, then run the command again",
            )
        time.sleep(_ATTEMPT_EVERY_S)
