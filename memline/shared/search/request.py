"""Define what a search is asked: the question and its options, and which files they limit it to."""

import json
from collections.abc import Callable, Iterable
from datetime import date
from sqlite3 import Connection
from typing import Annotated, Any, Literal
from unicodedata import normalize

import msgspec
from msgspec import Meta

from memline.shared.errors import BadRequest, not_utf_8
from memline.shared.sources.about import tag_key
from memline.shared.sources.dates import Days, day_of_time, parse_bound
from memline.shared.sources.paths import compile_pattern, is_private, is_storable

# The days that a file says: those of the messages of a transcript, or that of a note.
_FIRST, _LAST = "nullif(first_day, ''), nullif(day, '')", "nullif(last_day, ''), nullif(day, '')"
_OF_DAYS = (
    f"SELECT id FROM files WHERE coalesce({_LAST}) >= ?1 AND coalesce({_FIRST}) <= ?2"
    " AND (?3 IS NULL OR id IN (SELECT value FROM json_each(?3))) ORDER BY day, path"
)
_WRITTEN = "date(mtime_ns / 1000000000, 'unixepoch', 'localtime')"
_FILES = (
    "SELECT id, path FROM files WHERE ?1 IN ('', source)"
    " AND (?2 = '[]' OR source IN (SELECT value FROM json_each(?2)))"
    f" AND coalesce({_LAST}, {_WRITTEN}) >= ?3 AND coalesce({_FIRST}, {_WRITTEN}) <= ?4 ORDER BY id"
)
# The character behind a slash ends what begins with it.
_TAGGED = "SELECT file_id FROM tags WHERE tag = ?1 OR tag >= ?1 || '/' AND tag < ?1 || '0'"


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question and its options, and what the caller may see; None and empty limit nothing."""

    query: str
    #: False leaves private files out: the long-term note.
    private: bool = True
    max_results: Annotated[int, Meta(ge=1)] | None = None
    #: Cosine below which a hit of the vector retriever alone is cut.
    min_score: Annotated[float, Meta(ge=0, le=1)] | None = None
    source: Literal["", "memory", "sessions"] = ""
    #: `*` stays within a folder, `**` does not; without a `/` it is about the file name. `exclude` wins.
    path: str = ""
    exclude: str = ""
    #: One, or several that a note must have; `#boat` and `Boat` are the same. An empty text is not a tag.
    tag: str | tuple[str, ...] = ()
    #: A date, an age (`30d`, `2w`) or words such as "last week": the day that a note says or has in its name,
    #: else that of its file.
    since: str = ""
    until: str = ""
    explain: bool = False

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that a note must have."""
        return (self.tag,) if isinstance(self.tag, str) else self.tag

    @property
    def is_limited(self) -> bool:
        """Whether an option, or what the caller may see, leaves files out."""
        options = (self.source, self.path, self.exclude, self.tag, self.since, self.until)
        return any(options) or not self.private


def search_request(query: str, *, private: bool = True, **options: Any) -> SearchRequest:
    """Make a request of the options that a caller gave: None is left out, and so is the source `all`.

    Raises BadRequest for what is no option, or no value of one, and MemlineError for invalid Unicode.
    """
    options = {name: each for name, each in options.items() if each is not None}
    if options.get("source") == "all":
        del options["source"]
    try:
        request = msgspec.convert({"query": query, "private": private, **options}, SearchRequest)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`").partition("[")[0]
        raise BadRequest(f"{name or 'search'}: {what}", hint="memline search --help") from error
    for text in (request.path, request.exclude, request.since, request.until, *request.tags):
        if not is_storable(text):
            raise not_utf_8(text)
    for tag in request.tags:
        if not tag_key(tag) or "," in tag:
            raise BadRequest(f"{tag[:80]!r} is not a tag", hint="give a tag such as boat or boat/dinghy")
    return request


def _matcher(glob: str) -> Callable[[str], bool]:
    """Return the test of a path by a glob; the path of a hit, or a name, also means a file with brackets."""
    glob = normalize("NFC", glob)
    literal, is_name = glob.lstrip("/"), "/" not in glob
    pattern = compile_pattern(f"**/{glob}" if is_name else literal)
    return lambda path: pattern.matches(path) or literal in (path, is_name and path.rpartition("/")[2])


def day_bounds(request: SearchRequest, now: float) -> tuple[date, date]:
    """Return the first and last day that a search is limited to. Raises BadRequest for what is none."""
    today, since, until = day_of_time(now), request.since, request.until
    first = parse_bound(since, today) if since else date.min
    last = parse_bound(until, today, is_end=True) if until else date.max
    if first > last:
        raise BadRequest(f"since, {first}, is after until, {last}", hint="give the earlier day as since")
    return first, last


def files_within(
    connection: Connection, request: SearchRequest, bounds: tuple[date, date], sources: tuple[str, ...] = ()
) -> list[int]:
    """List the ids of the files that pass, ascending; `sources` may be searched at all, all when empty."""
    is_wanted, is_unwanted = _matcher(request.path or "**/*"), _matcher(request.exclude)
    tagged = [files_of_tag(connection, tag) for tag in request.tags]
    rows = connection.execute(_FILES, (request.source, json.dumps(sources), *map(str, bounds)))
    return [
        file_id
        for file_id, path in rows
        if (request.private or not is_private(path))
        and is_wanted(name := normalize("NFC", path.lstrip("/")))
        and not (request.exclude and is_unwanted(name))
        and all(file_id in each for each in tagged)
    ]


def files_of_tag(connection: Connection, tag: str) -> set[int]:
    """Return the ids of the files with a tag, or one below it."""
    return {file_id for (file_id,) in connection.execute(_TAGGED, (tag_key(tag),))}


def files_of_days(connection: Connection, days: Iterable[Days], files: str | None = None) -> dict[int, None]:
    """Return the ids of the files of one of these days by what they say, in their order.

    `files`: a JSON array of ids to stay in; None for all.
    """
    rows = (connection.execute(_OF_DAYS, (str(each.first), str(each.last), files)) for each in days)
    return {file_id: None for some in rows for (file_id,) in some}
