"""Show an answer to an agent: with citations or without, within a budget, or why there is none."""

import math
from collections.abc import Mapping
from typing import Any

from memline.producers.chats import Chat, gets_citations, may_use_memory
from memline.shared.config.schema import AgentSettings
from memline.shared.finding import Finding, warning
from memline.shared.findings.check import of_agent
from memline.shared.findings.place import DISABLED
from memline.shared.search.results import Answer
from memline.shared.visible_text import for_model, one_line

#: What a snippet that was cut short ends with.
CUT = "…"

#: Characters of a snippet that are worth showing next to its citation.
_MIN_SNIPPET_CHARS = 20


def agent_view(answer: Mapping[str, Any], *, citations: bool, max_chars: int) -> dict[str, Any]:
    """Fit the answer of a search, as JSON, into the context of an agent.

    A snippet is text of a note, for a model (`for_model`); `path` stays the name to read it by. With
    `citations` every snippet ends with its citation, else no hit has one. Snippets are whole while
    `max_chars` last; the one that does not fit is cut, and the hits after it are left out (0: no limit).
    `truncated` says whether that happened.
    """
    results: list[dict[str, Any]] = []
    is_cut = False
    chars_left = max_chars or math.inf
    for hit in answer["results"]:
        if chars_left <= 0:
            is_cut = True
            break
        # The matched words are for those who mark them.
        shown, source = {name: hit[name] for name in hit if name != "matched"}, ""
        body = for_model(shown["snippet"])
        shown["heading"] = one_line(shown.get("heading", ""))
        if citations:
            shown["citation"] = one_line(shown["citation"])
            body, source = body.strip(), f"\n\nSource: {shown['citation']}"
        else:
            del shown["citation"]
        text = body + source
        if len(text) > chars_left:
            is_cut = True
            if len(source) + _MIN_SNIPPET_CHARS > chars_left:
                source = ""
            room = max(0, int(chars_left) - len(source) - len(CUT))
            text = body[:room] + CUT + source
        chars_left -= len(text)
        results.append({**shown, "snippet": text})
    return {**answer, "results": results, "totalResults": len(results), "truncated": is_cut}


def denied_answer(settings: AgentSettings, chat: Chat) -> dict[str, Any] | None:
    """Return the answer to a chat that may not use the agent's memory at all; None when it may."""
    if not settings.memory.enabled:
        return no_answer(settings, (DISABLED,))
    if not may_use_memory(settings.content.memory.scope, chat):
        refused = warning(
            "chat_refused",
            f"memory may not be used in this chat ({chat})",
            "answer without memory; memory.scope in the configuration says where it may be used",
        )
        return no_answer(settings, (refused,))
    return None


def view_for(chat: Chat, settings: AgentSettings, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Show the answer of a search, as JSON, as an agent sees it in this chat."""
    memory = settings.content.memory
    citations = gets_citations(memory.citations, chat)
    max_chars = memory.qmd.limits.max_injected_chars if memory.backend == "qmd" else 0
    return {**agent_view(answer, citations=citations, max_chars=max_chars), "citations": memory.citations}


def no_answer(settings: AgentSettings, found: tuple[Finding, ...]) -> dict[str, Any]:
    """Make an answer without results that says why, in the shape of one with results."""
    answer = Answer(findings=of_agent(settings.agent, found), workspace=str(settings.workspace))
    empty = view_for(Chat(), settings, answer.to_json())
    return {**empty, "disabled": True, "unavailable": False, "error": answer.warning}
