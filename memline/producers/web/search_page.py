"""Search the memory of an agent as `memline search --explain` does, each score with its parts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memline.producers.agents.tools import denied_answer
from memline.producers.calls.arguments import by_key, parse_texts, read
from memline.producers.calls.memory_calls import SEARCH
from memline.producers.memory import sees_private
from memline.producers.web.note_page import note_url
from memline.producers.web.page import Data, Page, View, command_line
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import BadRequest, ConfigError
from memline.shared.search.agent_view import chat_of
from memline.shared.search.request import SearchRequest, day_bounds, search_request
from memline.shared.search.results import pattern_of
from memline.shared.values import value

#: Characters of a question.
_MAX_QUESTION = 10_000


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
    request = _request(view, settings, read(SEARCH.takes_json, parse_texts(SEARCH.takes_json, given)))
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


def _request(view: View, settings: AgentSettings, values: Mapping[str, Any]) -> SearchRequest:
    """Read the question. Raises BadRequest."""
    # An agent's token asks as the API does for it, without the key of a session.
    private = sees_private(settings, None if view.is_owner else chat_of(""))
    request = search_request(**by_key(SEARCH, values), explain=True, private=private)
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


def _command(agent: str, given: Mapping[str, str]) -> str:
    options = {each.option: given[each.name] for each in SEARCH.takes_json if each.name in given}
    words = [word for option in options.items() for word in option]
    return command_line("--agent", agent, "search", *words, "--explain")


PAGES = (Page(path="/search", title="Search", template="search.html", data=_search),)
