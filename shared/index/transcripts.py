"""What the index keeps of session transcripts beside their chunks: how far each was read, and its figures."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.sources.transcript_progress import Progress

_COUNTS = "messages, broken, first_day, last_day"
_COLUMNS = f"consumed, lines, resume, title, {_COUNTS}"


def read(connection: Connection, path: str) -> Progress | None:
    """How far the transcript of a ledger path was read; None when it never was."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM transcripts WHERE file_id = (SELECT id FROM files WHERE path = ?)", (path,)
    ).fetchone()
    return _progress(row) if row else None


def read_all(connection: Connection) -> dict[str, Progress]:
    """The same of all transcripts, by ledger path."""
    rows = connection.execute(
        f"SELECT files.path, {_COLUMNS} FROM transcripts JOIN files ON files.id = file_id ORDER BY files.path"
    )
    return {path: _progress(row) for path, *row in rows}


def save(connection: Connection, file_id: int, progress: Progress | None) -> None:
    """Keep it, or with None forget what there was, inside the caller's transaction."""
    if progress is None:
        connection.execute("DELETE FROM transcripts WHERE file_id = ?", (file_id,))
        return
    counts = progress.counts
    connection.execute(
        f"INSERT OR REPLACE INTO transcripts (file_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            file_id,
            progress.consumed,
            progress.lines,
            json.dumps(asdict(progress.resume)),
            progress.title,
            counts.messages,
            counts.broken,
            counts.first_day,
            counts.last_day,
        ),
    )


def days(connection: Connection) -> dict[int, tuple[str, str]]:
    """File id -> first and last day (ISO) of the transcripts that have one; also of an older index."""
    is_there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'transcripts'").fetchone()
    if is_there is None:
        return {}
    rows = connection.execute("SELECT file_id, first_day, last_day FROM transcripts WHERE first_day <> ''")
    return {file_id: (first, last) for file_id, first, last in rows}


def _progress(row: tuple[int, int, str, str, int, int, str, str]) -> Progress:
    # Loaded where transcripts are read: every search imports this module.
    from shared.sources.transcript_progress import Counts, Place, Progress, Standing

    consumed, lines, resume, title, messages, broken, first_day, last_day = row
    try:
        place = json.loads(resume)
        begin = Place(**{**place, "standing": Standing(**place["standing"])})
    except (ValueError, TypeError, KeyError):
        # Written by another version: nothing is known of where it ended, so all of it is read again.
        consumed, lines, begin = 0, 0, Place()
    return Progress(
        consumed=consumed,
        lines=lines,
        resume=begin,
        title=title,
        counts=Counts(
            messages=messages,
            broken=broken,
            first_day=first_day,
            last_day=last_day,
        ),
    )
