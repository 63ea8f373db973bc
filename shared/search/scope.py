"""Which files a search may answer from: its source, its path glob, its days."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from shared.index import transcripts
from shared.search.dates import day_of_path, day_of_time, parse_bound
from shared.search.results import SearchRequest
from shared.sources.patterns import compile_pattern
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection


@value
class Scope:
    """What a search is limited to; empty fields limit nothing."""

    source: str = ""
    #: Sources that may be searched at all; empty for every one.
    sources: tuple[str, ...] = ()
    path_glob: str = ""
    since: date | None = None
    until: date | None = None

    def files(self, connection: Connection) -> list[int]:
        """The ids of the files in scope, ascending."""
        rows = connection.execute(
            "SELECT id, path, mtime_ns, source FROM files WHERE ? IN ('', source) ORDER BY id", (self.source,)
        )
        found = [row for row in rows if not self.sources or row[3] in self.sources]
        if self.path_glob:
            # Without a folder the glob is about the name of the file.
            pattern = compile_pattern(self.path_glob if "/" in self.path_glob else f"**/{self.path_glob}")
            found = [row for row in found if pattern.matches(row[1].lstrip("/"))]
        if self.since is not None or self.until is not None:
            talks = transcripts.days(connection)
            found = [row for row in found if self._holds(talks.get(row[0]), row[1], row[2])]
        return [row[0] for row in found]

    def _holds(self, talk: tuple[str, str] | None, path: str, mtime_ns: int) -> bool:
        """Whether the day of a note, or one of the days of a session, is among those asked for."""
        if talk is not None:
            first, last = map(date.fromisoformat, talk)
        else:
            first = last = day_of_path(path) or day_of_time(mtime_ns / 1e9)
        return (self.since is None or last >= self.since) and (self.until is None or first <= self.until)


def scope_of(request: SearchRequest, now: float, sources: tuple[str, ...] = ()) -> Scope:
    """The scope the options of a search ask for, within `sources`. Raises ConfigError for what is no date."""
    today = day_of_time(now)
    return Scope(
        source=request.source,
        sources=sources,
        path_glob=request.path_glob,
        since=parse_bound(request.since, today, option="--since") if request.since else None,
        until=parse_bound(request.until, today, option="--until") if request.until else None,
    )
