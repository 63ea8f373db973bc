"""Limit a search to files by source, path glob and day."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from memline.shared.index import ledger
from memline.shared.search.dates import day_of_path, day_of_time, parse_bound
from memline.shared.search.results import SearchRequest
from memline.shared.sources.paths import compile_pattern, is_private

if TYPE_CHECKING:
    from sqlite3 import Connection


def day_bounds(request: SearchRequest, now: float) -> tuple[date, date]:
    """Return the first and last day that a search is limited to. Raises ConfigError for an invalid date."""
    today = day_of_time(now)
    return (
        parse_bound(request.since, today, option="--since") if request.since else date.min,
        parse_bound(request.until, today, option="--until") if request.until else date.max,
    )


def files_within(
    connection: Connection, request: SearchRequest, bounds: tuple[date, date], sources: tuple[str, ...] = ()
) -> list[int]:
    """List the ids of the files that pass, ascending; `sources` may be searched at all, all when empty."""
    rows = connection.execute(
        "SELECT id, path, mtime_ns, source, day FROM files WHERE ? IN ('', source) ORDER BY id",
        (request.source,),
    )
    files = [row for row in rows if not sources or row[3] in sources]
    if not request.private:
        files = [row for row in files if not is_private(row[1])]
    if glob := request.path_glob:
        # Without a folder the glob is about the name of the file.
        pattern = compile_pattern(glob if "/" in glob else f"**/{glob}")
        files = [row for row in files if pattern.matches(row[1].lstrip("/"))]
    if bounds == (date.min, date.max):
        return [row[0] for row in files]
    sessions = ledger.session_days(connection)
    within = []
    for file_id, path, mtime_ns, _, day in files:
        if file_id in sessions:
            first, last = map(date.fromisoformat, sessions[file_id])
        else:
            first = last = (
                date.fromisoformat(day) if day else day_of_path(path) or day_of_time(mtime_ns / 1e9)
            )
        if last >= bounds[0] and first <= bounds[1]:
            within.append(file_id)
    return within
