"""Search the memory of an agent, each score with its parts, and show a note with the lines cited."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from memline.producers.agent_view import chat_of
from memline.producers.agents.tools import Caller, Json, denied_answer, request_of
from memline.producers.calls.arguments import parse_texts, read
from memline.producers.calls.memory_calls import SEARCH
from memline.producers.memory import sees_private
from memline.producers.web.page import Data, Page, PageMissing, View, command_line
from memline.producers.web.rendering import ROOT, file_url
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault
from memline.shared.index import driver
from memline.shared.index.ledger import GONE_HERE
from memline.shared.search.results import pattern_of
from memline.shared.sources.paths import is_transcript

#: Characters of a question.
_MAX_QUESTION = 10_000


def _search(view: View) -> Data:
    texts = {each.name: view.query.get(each.name, "").strip() for each in SEARCH.takes_json}
    texts["query"] = view.query.get("q", "").strip()[:_MAX_QUESTION]
    given = {name: text for name, text in texts.items() if text}
    chosen = view.query.get("agent", "") or view.access.only or view.access.default_agent
    data: dict[str, object] = {
        "names": [settings.agent for settings in view.agents],
        "chosen": chosen,
        "texts": texts,
        "filters": [each for each in SEARCH.takes_json if each.name != "query"],
        "answer": None,
        "hits": [],
        "steps": [],
        "took_ms": 0.0,
        "command": "",
    }
    if not texts["query"]:
        return data
    settings = view.agent(chosen)
    values = read(SEARCH.takes_json, parse_texts(SEARCH.takes_json, given))
    # An agent's token asks as the API does for it, without the key of a session.
    private = sees_private(settings, None if view.is_owner else chat_of(""))
    request = request_of(values, now=time.time(), explain=True, private=private)
    began = time.perf_counter()
    # The owner may ask in every chat; a memory that is switched off answers no one.
    may_ask = view.is_owner and settings.memory.enabled
    denied = None if may_ask else denied_answer(settings, chat_of(""))
    answer = denied or view.site.tools.memory(settings.agent).ask(request).to_json()
    return data | {
        "answer": answer,
        "hits": [_shown(hit, settings.agent) for hit in answer["results"]],
        "steps": list(answer.get("timings", {}).items()),
        "took_ms": (time.perf_counter() - began) * 1000,
        "command": _command(settings.agent, given),
    }


def _shown(hit: Mapping[str, Any], agent: str) -> Data:
    return {
        "citation": hit["citation"],
        "heading": " · ".join(filter(None, (hit["heading"], GONE_HERE * hit.get("gone", False)))),
        "score": hit["score"],
        "runs": tuple(_runs(hit["snippet"], hit["matched"])),
        # Name and value of what its score is made of.
        "parts": tuple(_parts(hit)),
        "url": note_url(agent, hit["path"], hit["startLine"], hit["endLine"]),
        "command": command_line("--agent", agent, "get", hit["citation"]),
    }


def _runs(snippet: str, words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Cut a text into runs, each with whether it matched."""
    pattern, end = pattern_of(words), 0
    for match in pattern.finditer(snippet) if pattern else ():
        yield snippet[end : match.start()], False
        yield match[0], True
        end = match.end()
    yield snippet[end:], False


def _parts(hit: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "vector", f"{hit['vectorScore']:.3f}"
    yield "text", f"{hit['textScore']:.3f}"
    for name, each in hit.get("explain", {}).items():
        if isinstance(each, list):
            each = ", ".join(str(part) for part in each)
        if each not in (None, "", {}):
            yield name, f"{each:.4g}" if isinstance(each, float) else str(each)


def _command(agent: str, given: Mapping[str, str]) -> str:
    options = {each.option: given[each.name] for each in SEARCH.takes_json if each.name in given}
    words = [word for option in options.items() for word in option]
    return command_line("--agent", agent, "search", *words, "--explain")


#: Lines of a page at most, and lines shown above the asked ones.
LINES = 300
ABOVE = 20


def note_url(agent: str, path: str, first: int = 1, last: int = 0) -> str:
    """Make the address of a note at these lines; `last` 0: none is marked."""
    query: dict[str, object] = {"agent": agent, "path": path, "from": first}
    if last:
        query["to"] = last
    return f"{ROOT}/note?{urlencode(query, errors='surrogatepass')}" + (f"#L{first}" if last else "")


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
        {
            # In a conversation lines are not those of the transcript.
            "number": None if is_said else number,
            "text": text,
            "is_asked": not is_said and asked <= number <= to,
            "lanes": lanes.get(number, (None, None)),
        }
        for number, text in enumerate(texts, first)
    ]
    before = max(1, first - LINES)
    following = excerpt["nextFrom"]
    return {
        "title": f"Note {excerpt['path']}",
        "agent": settings.agent,
        "path": excerpt["path"],
        "lines": lines,
        "said": f"lines {excerpt['from']} and following of the transcript, masked" if is_said else "",
        "file": file_url(settings.agent, excerpt["path"]),
        "linked": [
            (
                words,
                [(each["title"] or each["path"], note_url(settings.agent, each["path"])) for each in names],
                total,
            )
            for words, names, total in (
                ("Links to", excerpt["links"], excerpt["totalLinks"]),
                ("Linked from", excerpt["backlinks"], excerpt["totalBacklinks"]),
            )
            if names
        ],
        "before": note_url(settings.agent, excerpt["path"], before) if first > 1 else "",
        "after": note_url(settings.agent, excerpt["path"], following) if following else "",
        "truncated": excerpt["truncated"] and not following,
        "command": command_line("--agent", settings.agent, "get", excerpt["path"], "--from", str(asked)),
    }


def _lanes(
    settings: AgentSettings, path: str, first: int, stop: int
) -> dict[int, tuple[tuple[int, bool] | None, ...]]:
    """Return line number -> for each of two lanes the chunk that the line is in, and whether it begins there.

    None outside of any. Chunks overlap, so that neighbours are in different lanes. Empty without an index.
    """
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


PAGES = (
    Page(path="/search", title="Search", group="Search", template="search.html", data=_search),
    Page(path="/note", title="Note", template="note.html", data=_note),
)
