"""Keep the ledger of files: one row for every file on the disk, with its outcome and the reason."""

from __future__ import annotations

from sqlite3 import Connection

from memline.shared.index.driver import scalar, select
from memline.shared.index.rows import FileRow, LedgerEntry
from memline.shared.sources import outcomes
from memline.shared.sources.outcomes import INDEXED
from memline.shared.sources.paths import MEMORY, SESSIONS

#: The file was removed. Its row stays for a while, so that an older message cannot store the content again.
REMOVED = outcomes.GONE

#: Outcomes that make `index` exit 1: the user should look at the file.
PROBLEMS = (outcomes.UNREADABLE, outcomes.FAILED, outcomes.TOO_LARGE, outcomes.NOT_TEXT)

#: By way of the index `files_source`.
_HAS_PROBLEM = f"source IN ('{MEMORY}', '{SESSIONS}') AND outcome IN ({', '.join(map(repr, PROBLEMS))})"

#: What stands for all of PROBLEMS in a filter.
ANY_OF_PROBLEMS = "problems"

#: Nanoseconds a removed file's row is kept: messages are minutes late at worst, not an hour.
TOMBSTONE_NS = 3_600 * 10**9

_COLUMNS = LedgerEntry.__struct_fields__


def entries(connection: Connection) -> dict[str, LedgerEntry]:
    """Return all files that are not removed, by path."""
    rows = select(connection, LedgerEntry, "files", "WHERE outcome <> ? ORDER BY path", REMOVED)
    return {row.path: row for row in rows}


def problems(connection: Connection) -> list[LedgerEntry]:
    """Return the files whose outcome is one of PROBLEMS, by path."""
    return select(connection, LedgerEntry, "files", f"WHERE {_HAS_PROBLEM} ORDER BY path")


def left_out(connection: Connection) -> frozenset[str]:
    """Return the paths of the files that are there and have nothing in the index, whatever the reason."""
    query = "SELECT path FROM files WHERE outcome NOT IN (?, ?)"
    return frozenset(path for (path,) in connection.execute(query, (INDEXED, REMOVED)))


def page(connection: Connection, *, outcome: str, path: str, count: int) -> list[tuple[LedgerEntry, int]]:
    """List the first files that are not removed and how many chunks each has, by path.

    `outcome`: one, or ANY_OF_PROBLEMS; `path`: a part of the path, in any case. Empty filters limit nothing.
    """
    has_outcome = _HAS_PROBLEM if outcome == ANY_OF_PROBLEMS else "?2 IN ('', outcome)"
    rows = connection.execute(
        f"SELECT {', '.join(_COLUMNS)}, (SELECT count(*) FROM chunks WHERE file_id = files.id) FROM files"
        f" WHERE outcome <> ?1 AND {has_outcome} AND instr(lower(path), lower(?3))"
        " ORDER BY path LIMIT ?4",
        (REMOVED, outcome, path, count),
    )
    return [(LedgerEntry(*row), chunks) for *row, chunks in rows]


def entry(connection: Connection, path: str) -> LedgerEntry | None:
    """Return the row of `path`, also when the file was removed."""
    return next(iter(select(connection, LedgerEntry, "files", "WHERE path = ?", path)), None)


def record(connection: Connection, row: FileRow) -> int:
    """Insert or update the row of a file and return its id. The caller has checked that `row` is newer."""
    return int(scalar(connection, _RECORD, *(getattr(row, column) for column in _COLUMNS)))


_RECORD = (
    f"INSERT INTO files ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
    f" ON CONFLICT (path) DO UPDATE SET {', '.join(f'{each} = excluded.{each}' for each in _COLUMNS[1:])}"
    " RETURNING id"
)


def touch(connection: Connection, row: FileRow) -> None:
    """Update size and times of a file whose content is the same."""
    connection.execute(
        "UPDATE files SET size = ?, mtime_ns = ?, ctime_ns = ?, observed_ns = ? WHERE path = ?",
        (row.size, row.mtime_ns, row.ctime_ns, row.observed_ns, row.path),
    )


def forget_removed(connection: Connection, before_ns: int) -> None:
    """Delete the rows of files that were removed before `before_ns`, inside the caller's transaction."""
    connection.execute("DELETE FROM files WHERE outcome = ? AND observed_ns < ?", (REMOVED, before_ns))


def sources(connection: Connection) -> frozenset[str]:
    """Return the sources that files are of."""
    query = "SELECT 1 FROM files WHERE source = ? LIMIT 1"
    return frozenset(each for each in (MEMORY, SESSIONS) if scalar(connection, query, each))


def outcome_counts(connection: Connection) -> dict[str, int]:
    """Count files by outcome, without removed ones."""
    query = "SELECT outcome, count(*) FROM files WHERE outcome <> ? GROUP BY outcome ORDER BY outcome"
    return dict(connection.execute(query, (REMOVED,)).fetchall())


def source_counts(connection: Connection) -> list[tuple[str, int, int]]:
    """Return (source, searchable files, chunks), sorted by source."""
    rows = connection.execute(
        "SELECT files.source, count(DISTINCT files.id), count(chunks.id)"
        " FROM files LEFT JOIN chunks ON chunks.file_id = files.id"
        " WHERE files.outcome = ? GROUP BY files.source ORDER BY files.source",
        (INDEXED,),
    )
    return rows.fetchall()
