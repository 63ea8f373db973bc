"""An answer as it goes into an agent's context: with citations or without, within a budget of characters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What a snippet that was cut short ends with.
CUT = "…"

#: Characters of a snippet that are worth showing beside its citation.
_LEAST = 20


def injected(answer: Mapping[str, Any], *, citations: bool, max_chars: int) -> dict[str, Any]:
    """The answer of a search, as JSON, for the context of an agent.

    With `citations` every snippet ends with its citation, else no hit has one. Snippets are whole while
    `max_chars` last; the one that does not fit is cut, and the hits after it are left out (0: no limit).
    `truncated` says whether that happened.
    """
    results: list[dict[str, Any]] = []
    left = max_chars or None
    is_cut = False
    for hit in answer["results"]:
        if left is not None and left <= 0:
            is_cut = True
            break
        made = dict(hit)
        source = f"\n\nSource: {made['citation']}" if citations else ""
        if not citations:
            del made["citation"]
        body = made["snippet"].strip() if citations else made["snippet"]
        whole = body + source
        if left is not None:
            if len(whole) > left:
                is_cut = True
                whole = _cut(body, source, left)
            left -= len(whole)
        made["snippet"] = whole
        results.append(made)
    return {**answer, "results": results, "totalResults": len(results), "truncated": is_cut}


def _cut(body: str, source: str, chars: int) -> str:
    """At most `chars` characters, the source among them when there is room for it."""
    if len(source) + _LEAST > chars:
        source = ""
    room = max(0, chars - len(source) - len(CUT))
    return body[:room] + CUT + source
