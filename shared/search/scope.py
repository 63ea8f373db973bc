"""Which files a search may answer from: its source, its path glob, its days."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING

from shared.search.dates import day_of_path, day_of_time, parse_bound
from shared.search.results import SearchRequest
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection


@value
class Scope:
    """What a search is limited to; empty fields limit nothing."""

    source: str = ""
    path_glob: str = ""
    since: date | None = None
    until: date | None = None

    def files(self, connection: Connection) -> list[int]:
        """The ids of the files in scope, ascending."""
        rows = connection.execute(
            "SELECT id, path, mtime_ns FROM files WHERE ? IN ('', source) ORDER BY id", (self.source,)
        )
        return [row_id for row_id, path, mtime_ns in rows if self._holds(path, mtime_ns)]

    def _holds(self, path: str, mtime_ns: int) -> bool:
        if self.path_glob and not _matcher(self.path_glob).fullmatch(path):
            return False
        if self.since is None and self.until is None:
            return True
        day = day_of_path(path) or day_of_time(mtime_ns / 1e9)
        return (self.since is None or day >= self.since) and (self.until is None or day <= self.until)


def scope_of(request: SearchRequest, now: float) -> Scope:
    """The scope the options of a search ask for. Raises ConfigError for a date that is none."""
    today = day_of_time(now)
    glob = request.path_glob.removeprefix("./")
    return Scope(
        source=request.source,
        path_glob=f"{glob}**" if glob.endswith("/") else glob,
        since=parse_bound(request.since, today, option="--since") if request.since else None,
        until=parse_bound(request.until, today, option="--until") if request.until else None,
    )


@lru_cache(maxsize=32)
def _matcher(glob: str) -> re.Pattern[str]:
    """`*` and `?` stay within a folder, `**` does not; a glob without `/` is about the file name."""
    if "/" not in glob and "**" not in glob:
        glob = f"**/{glob}"
    pattern = ""
    for piece in re.split(r"(\*\*/|\*\*|\*|\?)", glob):
        pattern += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece) or re.escape(piece)
    return re.compile(pattern, re.S)
