"""Show a note as it is on disk, as `memline get` reads it: line numbers, the asked lines marked."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlencode

from memline.producers.agents.tools import Caller, Json
from memline.producers.web.page import Data, Page, PageMissing, View, command_line
from memline.producers.web.rendering import ROOT
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault
from memline.shared.index import driver
from memline.shared.sources.paths import is_transcript
from memline.shared.values import value

#: Lines of a page at most, and lines shown above the asked ones.
LINES = 300
ABOVE = 20


@value
class Line:
    """A line of a note, or of what was said in a past conversation."""

    #: None in a conversation: its lines are not those of the transcript.
    number: int | None
    text: str
    is_asked: bool
    #: For each of two lanes: the number of the chunk that the line is in, and whether it begins there; None
    #: outside of any. Chunks overlap, so that neighbours are in different lanes.
    lanes: tuple[tuple[int, bool] | None, ...] = ()


def note_url(agent: str, path: str, first: int = 1, last: int = 0) -> str:
    """Make the address of a note at these lines; `last` 0: none is marked."""
    query: dict[str, object] = {"agent": agent, "path": path, "from": first}
    if last:
        query["to"] = last
    return f"{ROOT}/note?{urlencode(query, errors='surrogatepass')}" + (f"#L{first}" if last else "")


def file_url(agent: str, path: str) -> str:
    """Make the address of a file's chunks."""
    return f"{ROOT}/file?{urlencode({'agent': agent, 'path': path}, errors='surrogatepass')}"


def _note(view: View) -> Data:
    settings = view.agent(view.query.get("agent", ""))
    path = view.query.get("path", "")
    if not path:
        raise PageMissing("no note is named", hint="search, and open a hit")
    asked, to = view.number("from", 1, low=1), view.number("to", 0)
    first = max(1, asked - ABOVE) if to else asked
    is_said = is_transcript(path)
    excerpt = _excerpt(view, settings.agent, path, asked if is_said else first, to if is_said else 0)
    if excerpt["status"] == "not_found":
        raise PageMissing(f"there is no note {path[:200]!r}", hint="search again: it may have been moved")
    texts = excerpt["text"].split("\n") if excerpt["lines"] else []
    lanes = {} if is_said else _lanes(settings, excerpt["path"], first, first + len(texts))
    lines = [
        Line(
            number=None if is_said else number,
            text=text,
            is_asked=not is_said and asked <= number <= to,
            lanes=lanes.get(number, (None, None)),
        )
        for number, text in enumerate(texts, first)
    ]
    before = max(1, first - LINES)
    following = excerpt["nextFrom"]
    return {
        "agent": settings.agent,
        "path": excerpt["path"],
        "lines": lines,
        "said": f"lines {excerpt['from']} and following of the transcript, masked" if is_said else "",
        "file": file_url(settings.agent, excerpt["path"]),
        "before": note_url(settings.agent, excerpt["path"], before) if first > 1 else "",
        "after": note_url(settings.agent, excerpt["path"], following) if following else "",
        "truncated": excerpt["truncated"] and not following,
        "command": command_line("--agent", settings.agent, "get", excerpt["path"], "--from", str(asked)),
    }


def _lanes(
    settings: AgentSettings, path: str, first: int, stop: int
) -> dict[int, tuple[tuple[int, bool] | None, ...]]:
    """Return line number -> the chunks that the line is in, as the index has them; empty without an index."""
    query = (
        "SELECT ordinal, start_line, end_line FROM chunks"
        " WHERE file_id = (SELECT id FROM files WHERE path = ?) AND end_line >= ?"
        " AND start_line < ? ORDER BY ordinal"
    )
    found: dict[int, list[tuple[int, bool] | None]] = {}
    # The note can be read whatever is wrong with the index; its page says so elsewhere.
    with suppress(IndexFault), driver.reading_if_any(settings.index_path) as reader:
        rows = reader.execute(query, (path, first, stop)).fetchall() if reader else []
        for ordinal, start, end in rows:
            for number in range(max(start, first), min(end + 1, stop)):
                found.setdefault(number, [None, None])[ordinal % 2] = ordinal + 1, number == start
    return {number: tuple(lanes) for number, lanes in found.items()}


def _excerpt(view: View, agent: str, path: str, first: int, last: int) -> Json:
    """Read lines by the rules of `memory_get` for an agent's token; the owner reads all of the memory."""
    lines = last - first + 1 if last >= first else LINES
    if view.is_owner:
        return view.site.tools.memory(agent).get(path, first=first, lines=lines).to_json()
    return view.site.tools.get(Caller(agent=agent), {"path": path, "from": first, "lines": lines})


PAGES = (Page(path="/note", title="Note", template="note.html", data=_note, is_in_nav=False),)
