"""The ledger of files: one row for every file seen, with what became of it and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.index import transcripts
from shared.sources import outcomes
from shared.sources.outcomes import INDEXED
from shared.sources.transcript_names import MEMORY, SESSIONS

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.index.rows import FileRow
    from shared.sources.transcript_progress import Progress

#: It is gone. The row stays for a while, so that an older message cannot bring the content back.
REMOVED = outcomes.GONE

#: Outcomes that make `index` exit 1: somebody should look at the file.
PROBLEMS = (
    outcomes.UNREADABLE,
    outcomes.FAILED,
    outcomes.TOO_LARGE,
    outcomes.NOT_TEXT,
    outcomes.BAD_NAME,
)

#: `mtime_ns` of a file that is read in parts and not to its end yet: no scan takes it for up to date.
PARTLY = -1

#: Nanoseconds a removed file's row is kept: messages are minutes late at worst, not an hour.
TOMBSTONE_NS = 3_600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """What the ledger knows of one file."""

    path: str
    source: str
    size: int
    mtime_ns: int
    hash: str
    observed_ns: int
    outcome: str
    reason: str
    chunking: str
    #: Of a transcript, how far it was read.
    progress: Progress | None = None


_COLUMNS = "path, source, size, mtime_ns, hash, observed_ns, outcome, reason, chunking"


def entries(connection: Connection, source: str | None = None) -> dict[str, LedgerEntry]:
    """All files of `source` (or of all sources) that are not gone, by path."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM files WHERE outcome <> ? AND (? IS NULL OR source = ?) ORDER BY path",
        (REMOVED, source, source),
    )
    return {row[0]: _entry(row) for row in rows}


def seen(connection: Connection) -> Iterator[tuple[str, int, int, str, str]]:
    """(path, size, mtime_ns, outcome, chunking) of the files that are not gone: what a scan compares.

    Every search asks this of every file, so it takes no more than is needed.
    """
    yield from connection.execute(
        "SELECT path, size, mtime_ns, outcome, chunking FROM files WHERE outcome <> ? ORDER BY path",
        (REMOVED,),
    )


def entry(connection: Connection, path: str) -> LedgerEntry | None:
    """The row of `path`, also when the file is gone."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM files WHERE path = ?", (path,)).fetchone()
    if row is None:
        return None
    found = _entry(row)
    return replace(found, progress=transcripts.read(connection, path)) if found.source == SESSIONS else found


def looked_at(connection: Connection, path: str) -> tuple[int, bool]:
    """When the row of a file was observed (ns; 0 without a row), and whether the file was read to its end."""
    row = connection.execute("SELECT observed_ns, mtime_ns FROM files WHERE path = ?", (path,)).fetchone()
    return (row[0], row[1] != PARTLY) if row else (0, False)


def record(connection: Connection, row: FileRow) -> int:
    """Insert or update the row of a file and return its id. The caller has checked that `row` is newer."""
    found = connection.execute(
        f"INSERT INTO files ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (path) DO UPDATE SET source = excluded.source, size = excluded.size,"
        " mtime_ns = excluded.mtime_ns, hash = excluded.hash, observed_ns = excluded.observed_ns,"
        " outcome = excluded.outcome, reason = excluded.reason, chunking = excluded.chunking RETURNING id",
        (
            row.path,
            row.source,
            row.size,
            row.mtime_ns,
            row.hash,
            row.observed_ns,
            row.outcome,
            row.reason,
            row.chunking,
        ),
    ).fetchone()
    return int(found[0])


def touch(connection: Connection, row: FileRow) -> None:
    """Same content, other size or time: only what the scanner compares is moved."""
    connection.execute(
        "UPDATE files SET size = ?, mtime_ns = ?, observed_ns = ? WHERE path = ?",
        (row.size, row.mtime_ns, row.observed_ns, row.path),
    )


def forget_removed(connection: Connection, before_ns: int) -> None:
    """Drop the rows of files that were gone before `before_ns`, inside the caller's transaction."""
    connection.execute("DELETE FROM files WHERE outcome = ? AND observed_ns < ?", (REMOVED, before_ns))


def has_others(connection: Connection, sources: Sequence[str]) -> bool:
    """Whether there are files of a source that is not among `sources`."""
    others = [source for source in (MEMORY, SESSIONS) if source not in sources]
    query = "SELECT 1 FROM files WHERE source = ? LIMIT 1"
    return any(connection.execute(query, (source,)).fetchone() for source in others)


def outcome_counts(connection: Connection) -> dict[str, int]:
    """Files by outcome, those that are gone left out."""
    rows = connection.execute(
        "SELECT outcome, count(*) FROM files WHERE outcome <> ? GROUP BY outcome ORDER BY outcome", (REMOVED,)
    )
    return dict(rows.fetchall())


def source_counts(connection: Connection) -> list[tuple[str, int, int]]:
    """(source, searchable files, chunks), sorted by source."""
    return list(
        connection.execute(
            "SELECT files.source, count(DISTINCT files.id), count(chunks.id)"
            " FROM files LEFT JOIN chunks ON chunks.file_id = files.id"
            " WHERE files.outcome = ? GROUP BY files.source ORDER BY files.source",
            (INDEXED,),
        )
    )


def _entry(row: tuple[str, str, int, int, str, int, str, str, str]) -> LedgerEntry:
    path, source, size, mtime_ns, digest, observed_ns, outcome, reason, chunking = row
    return LedgerEntry(
        path=path,
        source=source,
        size=size,
        mtime_ns=mtime_ns,
        hash=digest,
        observed_ns=observed_ns,
        outcome=outcome,
        reason=reason,
        chunking=chunking,
    )
