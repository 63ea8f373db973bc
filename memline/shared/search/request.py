"""Define what a search is asked: the question and its options, and which files they limit it to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date
from unicodedata import normalize

from memline.shared.errors import BadRequest, not_utf_8
from memline.shared.sources.dates import Days, day_of_path, day_of_time, parse_bound
from memline.shared.sources.paths import compile_pattern, is_private, is_storable
from memline.shared.sources.tags import tag_key
from memline.shared.values import replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection
    from typing import Any

#: The options that leave files out, and those of them that an index alone can tell.
FILTERS = ("source", "path", "exclude", "tag", "since", "until")
INDEX_FILTERS = frozenset(("tag",))


@value
class SearchOptions:
    """What may be said beside the question; None and empty take the settings, or limit nothing.

    Limits of requests are in `producers.api.calls`, below the same names.
    """

    max_results: int | None = None
    #: Cosine below which a hit of the vector retriever alone is cut.
    min_score: float | None = None
    source: str = ""
    #: `*` stays within a folder, `**` does not; without a `/` it is about the file name.
    path: str = ""
    #: A glob of the same kind; it wins over `path`.
    exclude: str = ""
    #: One, or several that a note must have; `#boat` and `Boat` are the same. An empty text is not a tag.
    tag: str | Collection[str] = ()
    #: A date, an age (`30d`, `2w`) or words such as "last week": the day that a note says or has in its name,
    #: else that of its file.
    since: str = ""
    until: str = ""
    explain: bool = False


@value
class SearchRequest(SearchOptions):
    """A question and its options, and what the caller may see."""

    query: str
    #: False leaves private files out: the long-term note.
    private: bool = True
    #: ISO day of who asks, where that is another process than the one that answers; empty: its own.
    today: str = ""


def _is_text(given: object) -> bool:
    return isinstance(given, str)


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


#: What each option takes: a test, and the same in words.
_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_results": (
        lambda given: _is_number(given) and isinstance(given, int) and given > 0,
        "a whole number from 1",
    ),
    "min_score": (lambda given: _is_number(given) and 0 <= given <= 1, "a number from 0 to 1"),
    "source": (lambda given: given in ("", "memory", "sessions"), "memory, sessions or all"),
    "tag": (
        lambda given: all(map(_is_text, given if isinstance(given, tuple) else (given,))),
        "a text or several",
    ),
    **dict.fromkeys(("path", "exclude", "since", "until"), (_is_text, "a text")),
}


def search_request(query: str, *, private: bool = True, **options: Any) -> SearchRequest:
    """Make a request of the options that a caller gave: None is left out, and so is the source `all`.

    Raises BadRequest for a value that no option takes, and a MemlineError for one that is not valid Unicode.
    """
    given: dict[str, Any] = {
        # One of several values is a list in JSON.
        name: tuple(each) if isinstance(each, (list, set, frozenset)) else each
        for name, each in options.items()
        if each is not None
    }
    if given.get("source") == "all":
        del given["source"]
    for name, each in given.items():
        if name in _WANTED and not _WANTED[name][0](each):
            raise BadRequest(
                f"{name}: {str(each)[:80]!r} is not {_WANTED[name][1]}", hint="memline search --help"
            )
    for name in given.keys() & {*FILTERS}:
        for text in _texts(given[name]):
            if not is_storable(text):
                raise not_utf_8(text)
            if "tag" in name and not any(map(tag_key, filter(str.strip, text.split(",")))):
                raise BadRequest(f"{text[:80]!r} is not a tag", hint="give a tag such as boat or boat/dinghy")
    return SearchRequest(query=query, private=private, **given)


def _texts(given: str | Collection[str]) -> tuple[str, ...]:
    """Return the texts of an option that takes one or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def filters_of(request: SearchRequest) -> tuple[str, ...]:
    """Name what leaves files out by what the request asks for."""
    given = tuple(name for name in FILTERS if getattr(request, name))
    return given if request.private else (*given, "access")


def path_filter(request: SearchRequest) -> Callable[[str], bool]:
    """Return what says whether the file at a path is meant by the globs of a request."""
    wanted, unwanted = (_is_named(glob) if glob else None for glob in (request.path, request.exclude))

    def is_meant(path: str) -> bool:
        name = normalize("NFC", path.lstrip("/"))
        return (wanted is None or wanted(name)) and not (unwanted and unwanted(name))

    return is_meant


def _is_named(glob: str) -> Callable[[str], bool]:
    """Return the test of a glob; without a folder it is about the name of the file.

    A path as a hit has it, or a name, means that file also where it has brackets. One that begins with `/`
    begins at the workspace or, of a file that lies elsewhere, at the root of the disk.
    """
    glob = normalize("NFC", glob)
    literal, is_name = glob.lstrip("/"), "/" not in glob
    pattern = compile_pattern(f"**/{glob}" if is_name else literal)
    return lambda path: pattern.matches(path) or literal in (path, is_name and path.rpartition("/")[2])


def from_workspace(request: SearchRequest, workspace: str) -> SearchRequest:
    """Return a request whose globs of files below the workspace begin there, and not at the root of the disk.

    Many commands show full paths.
    """
    folder = workspace.rstrip("/")
    path, exclude = (
        each.removeprefix(folder) if each.startswith(f"{folder}/") else each
        for each in (request.path, request.exclude)
    )
    given = path, exclude
    return (
        request if given == (request.path, request.exclude) else replace(request, path=path, exclude=exclude)
    )


def today_of(request: SearchRequest, now: float) -> date:
    """Return the day on which a question is asked."""
    return date.fromisoformat(request.today) if request.today else day_of_time(now)


def day_bounds(request: SearchRequest, now: float) -> tuple[date, date]:
    """Return the first and last day that a search is limited to. Raises ConfigError for an invalid date."""
    today = today_of(request, now)
    return (
        parse_bound(request.since, today, option="--since") if request.since else date.min,
        parse_bound(request.until, today, option="--until", is_end=True) if request.until else date.max,
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
    for tag in _each_tag(connection, _texts(request.tag)):
        tagged = files_of_tag(connection, tag_key(tag))
        files = [row for row in files if row[0] in tagged]
    if bounds == (date.min, date.max):
        return [row[0] for row in files]
    sessions = session_days(connection)
    within = []
    for file_id, path, mtime_ns, _, day in files:
        said = _said_days(file_id, path, day, sessions)
        first, last = said or (day_of_time(mtime_ns / 1e9),) * 2
        if last >= bounds[0] and first <= bounds[1]:
            within.append(file_id)
    return within


def _each_tag(connection: Connection, given: Iterable[str]) -> Iterator[str]:
    """Yield the tags that are given, `a,b` as two, unless a note has that as one."""
    for text in filter(None, given):
        is_one = "," not in text or files_of_tag(connection, tag_key(text))
        names = [] if is_one else [*filter(str.strip, text.split(","))]
        yield from names or (text,)


def files_of_tag(connection: Connection, tag: str) -> set[int]:
    """Return the ids of the files with a tag, as `tag_key` has it, or one below it."""
    # The character behind a slash ends what begins with it.
    below = "SELECT file_id FROM tags WHERE tag = ?1 OR tag >= ?1 || '/' AND tag < ?1 || '0'"
    return {file_id for (file_id,) in connection.execute(below, (tag,))}


def files_of_days(connection: Connection, days: Iterable[Days]) -> set[int]:
    """Return the ids of the files of one of these days by what they say: not by the time of the file."""
    days, sessions = tuple(days), session_days(connection)
    dated = (
        "SELECT id, path, day FROM files WHERE day <> '' OR source = 'sessions' OR path GLOB '*[0-9][0-9]*'"
    )
    rows = connection.execute(dated)
    said = ((file_id, _said_days(file_id, path, day, sessions)) for file_id, path, day in rows)
    return {
        file_id
        for file_id, of in said
        if of and any(of[1] >= each.first and of[0] <= each.last for each in days)
    }


def _said_days(
    file_id: int, path: str, day: str, sessions: dict[int, tuple[str, str]]
) -> tuple[date, date] | None:
    """Return the first and last day of a file, by its front matter, its name or its messages."""
    if file_id in sessions:
        first, last = map(date.fromisoformat, sessions[file_id])
        return first, last
    of = date.fromisoformat(day) if day else day_of_path(path)
    return (of, of) if of else None


def session_days(connection: Connection) -> dict[int, tuple[str, str]]:
    """Return file id -> first and last day (ISO) of the transcripts that have one."""
    rows = connection.execute("SELECT file_id, first_day, last_day FROM transcripts WHERE first_day <> ''")
    return {file_id: (first, last) for file_id, first, last in rows}
