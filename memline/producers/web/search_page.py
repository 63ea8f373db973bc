"""Search the memory of an agent as `memline search --explain` does, each score with its parts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memline.producers.agents.tools import denied_answer
from memline.producers.memory import sees_private
from memline.producers.web.note_page import note_url
from memline.producers.web.page import Data, Page, View, command_line
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import BadRequest, ConfigError
from memline.shared.search.agent_view import chat_of
from memline.shared.search.filters import day_bounds
from memline.shared.search.results import SearchRequest, pattern_of
from memline.shared.values import value

#: Hits of a page at most.
MOST_HITS = 50


@value
class ShownHit:
    """A hit, its snippet cut into runs of text that matched or did not."""

    citation: str
    heading: str
    score: float
    #: (text, whether it matched)
    runs: tuple[tuple[str, bool], ...]
    #: (name, value) of what its score is made of
    parts: tuple[tuple[str, str], ...]
    #: Where its note is shown.
    url: str
    command: str


def _search(view: View) -> Data:
    query = view.query.get("q", "").strip()
    chosen = view.query.get("agent", "") or view.access.only or view.access.default_agent
    filters = {name: view.query.get(name, "").strip() for name in ("source", "path", "since", "until")}
    data: dict[str, object] = {
        "names": [settings.agent for settings in view.agents],
        "chosen": chosen,
        "q": query,
        "filters": filters,
        "most": view.number("n", 6, low=1, high=MOST_HITS),
        "answer": None,
        "hits": [],
        "steps": [],
        "took_ms": 0.0,
        "command": "",
    }
    if not query:
        return data
    settings = view.agent(chosen)
    request = _request(view, settings, query, filters)
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
        "command": _command(settings.agent, query, filters, request.max_results),
    }


def _request(view: View, settings: AgentSettings, query: str, filters: Mapping[str, str]) -> SearchRequest:
    """Read the question. Raises BadRequest."""
    if filters["source"] not in ("", "memory", "sessions"):
        raise BadRequest("source is memory or sessions", hint="choose one, or all")
    request = SearchRequest(
        query=query[:10_000],
        max_results=view.number("n", 6, low=1, high=MOST_HITS),
        source=filters["source"],
        path_glob=filters["path"],
        since=filters["since"],
        until=filters["until"],
        explain=True,
        # An agent's token asks as the API does for it, without the key of a session.
        private=sees_private(settings, None if view.is_owner else chat_of("")),
    )
    try:
        day_bounds(request, time.time())
    except ConfigError as error:
        hint = "a date such as 2026-02-10, or an age: 30d"
        raise BadRequest(error.message.removeprefix("--"), hint=hint) from error
    return request


def _shown(hit: Mapping[str, Any], agent: str) -> ShownHit:
    return ShownHit(
        citation=hit["citation"],
        heading=hit["heading"],
        score=hit["score"],
        runs=tuple(_runs(hit["snippet"], hit["matched"])),
        parts=tuple(_parts(hit)),
        url=note_url(agent, hit["path"], hit["startLine"], hit["endLine"]),
        command=command_line("--agent", agent, "get", hit["citation"]),
    )


def _runs(snippet: str, words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Cut a text at the words that matched."""
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


def _command(agent: str, query: str, filters: Mapping[str, str], most: int | None) -> str:
    words = ["--agent", agent, "search", "--query", query, "--explain"]
    for name, text in filters.items():
        if text:
            words += [f"--{name}", text]
    return command_line(*words, *([] if most in (None, 6) else ["--max-results", str(most)]))


PAGES = (Page(path="/search", title="Search", template="search.html", data=_search),)
