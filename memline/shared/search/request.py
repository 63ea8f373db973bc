"""Define what a search is asked: the question and its options, and which files they limit it to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any

from memline.shared.search.dates import day_of_path, day_of_time, parse_bound
from memline.shared.sources.paths import Pattern, compile_pattern, is_private
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection


@value
class SearchOptions:
    """What may be said beside the question; None and empty take the settings, or limit nothing.

    Words and limits are in the table of calls (`producers.calls`), below the same names.
    """

    max_results: int | None = None
    #: Cosine below which a hit of the vector retriever alone is cut.
    min_score: float | None = None
    source: str = ""
    #: `*` stays within a folder, `**` does not; without a `/` it is about the file name.
    path: str = ""
    #: A glob of the same kind; it wins over `path`.
    exclude: str = ""
    #: A date or an age (`30d`, `2w`): the day in a note's name, else the day of its file.
    since: str = ""
    until: str = ""
    explain: bool = False


@value
class SearchRequest(SearchOptions):
    """A question and its options, and what the caller may see."""

    query: str
    #: False cites each chunk alone, also those that overlap.
    merge: bool = True
    #: False leaves private files out: the long-term note.
    private: bool = True


def search_request(query: str, *, private: bool = True, **options: Any) -> SearchRequest:
    """Make a request of the options that a caller gave: None is left out, and so is the source `all`."""
    given = {name: each for name, each in options.items() if each is not None}
    if given.get("source") == "all":
        del given["source"]
    return SearchRequest(query=query, private=private, **given)


def is_limited(request: SearchRequest) -> bool:
    """Say whether some files are left out by what the request asks for."""
    by_place = (request.source, request.path, request.exclude, not request.private)
    return any((*by_place, request.since, request.until))


def path_filter(request: SearchRequest) -> Callable[[str], bool]:
    """Return what says whether the file at a path is meant by the globs of a request."""
    wanted, unwanted = (_pattern(glob) if glob else None for glob in (request.path, request.exclude))

    def is_meant(path: str) -> bool:
        name = path.lstrip("/")
        return (wanted is None or wanted.matches(name)) and not (unwanted and unwanted.matches(name))

    return is_meant


def _pattern(glob: str) -> Pattern:
    """Compile a glob; without a folder it is about the name of the file."""
    return compile_pattern(glob if "/" in glob else f"**/{glob}")


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
    is_meant = path_filter(request)
    files = [row for row in files if is_meant(row[1])]
    if bounds == (date.min, date.max):
        return [row[0] for row in files]
    sessions = session_days(connection)
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


def session_days(connection: Connection) -> dict[int, tuple[str, str]]:
    """Return file id -> first and last day (ISO) of the transcripts that have one."""
    rows = connection.execute("SELECT file_id, first_day, last_day FROM transcripts WHERE first_day <> ''")
    return {file_id: (first, last) for file_id, first, last in rows}
