"""Search one agent's memory.

    question -> vector (no lock held, no transaction open) -> one read transaction:
    score words, compare vectors -> lift -> fuse -> passages -> snippets

A part that cannot work is named in the answer and the others go on; an empty list always says why.
"""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection

from msgspec.structs import replace

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import Query
from memline.shared.errors import ProviderError
from memline.shared.finding import Finding, warning
from memline.shared.index import identities, ledger
from memline.shared.index.driver import json_ids
from memline.shared.index.identities import IdentityRow
from memline.shared.packages import lack, remedy
from memline.shared.search.question import analyse
from memline.shared.search.ranking import Ranking
from memline.shared.search.request import SearchRequest, day_bounds, files_within, filters_of, today_of
from memline.shared.search.results import Answer
from memline.shared.search.search_index import SearchIndex
from memline.shared.search.vectors import Comparison

#: Returns what embeds a question under an identity, as the rows of the index allow it now. That is called
#: with no transaction open, and raises a ProviderError: at once, while the provider may not be asked.
Embedder = Callable[[Connection, IdentityRow], Callable[[str], bytes]]


def retrieve(
    index: SearchIndex,
    request: SearchRequest,
    settings: Query,
    *,
    embedder: Embedder | None = None,
    sources: tuple[str, ...] = (),
    chunk_tokens: int = 400,
    clock: Clock | None = None,
) -> Answer:
    """Answer `request` from `index`, and within `sources` when there are any.

    `embedder`: None searches keywords alone. Where a question cannot be embedded, or its vector does not fit
    the index, keyword hits are returned with the finding. A hit is up to one and a half times `chunk_tokens`.
    Raises IndexFaults (IndexMissing: there is nothing to search yet), and ConfigError for a bad date.
    """
    limits = {"max_results": request.max_results, "min_score": request.min_score}
    settings = replace(settings, **{name: each for name, each in limits.items() if each is not None})
    now = (clock or SystemClock()).now()
    bounds = day_bounds(request, now)
    question, findings = analyse(request.query, today_of(request, now)), list[Finding]()
    if sources and request.source not in ("", *sources):
        what = f"the source {request.source} is switched off"
        action = "add it to memorySearch.sources (sessions also need experimental.sessionMemory)"
        findings.append(warning("source_missing", f"{what} for this agent", action))
        return Answer(notice=f"nothing was searched: {what}", findings=tuple(findings))
    if not question.text:
        return Answer(notice="the question is empty")
    asked = None if embedder is None else _embedded(index, embedder, question.text, findings)
    with index.snapshot() as connection:
        active = identities.active(connection)
        # What was indexed while a source was switched on is not shown once it is off.
        is_limited = filters_of(request) or (sources and ledger.has_others(connection, sources))
        files = json_ids(files_within(connection, request, bounds, sources)) if is_limited else None
        vectors = None if asked is None else _compared(index, active, *asked, findings)
        search = Ranking(index.matches, request, question, settings, files)
        hits = search.hits(search.ranked(vectors, now), chunk_tokens * 3 // 2)
        return Answer(
            hits=hits,
            mode=search.mode,
            notice=search.notice(hits),
            missing=search.words.missing,
            findings=tuple(findings),
            provider=active.identity.provider if active else "none",
            model=active.identity.model if active else "",
        )


def _embedded(
    index: SearchIndex, embedder: Embedder, text: str, findings: list[Finding]
) -> tuple[int, bytes] | None:
    """Return the active identity of an index and the vector of a question under it, or None."""
    with index.snapshot() as connection:
        active = identities.active(connection)
        if active is None or not active.vector_dims:
            return None
        embed = embedder(connection, active)
    try:
        return active.id, embed(text)
    except ProviderError as error:
        findings.append(_not_embedded(f"the question could not be embedded: {error.message}", error.hint))
        return None


def _not_embedded(reason: str, action: str) -> Finding:
    what = f"only keywords were searched: {reason}"
    return warning("question_not_embedded", what, action or "memline doctor --deep")


def _compared(
    index: SearchIndex, active: IdentityRow | None, identity_id: int, vector: bytes, findings: list[Finding]
) -> Comparison | None:
    """Return what compares the vector of a question with those of an index, or None and a finding."""
    if active is None or active.id != identity_id:
        findings.append(_not_embedded("the model was changed meanwhile", "search again"))
        return None
    if (dims := len(vector) // 4) != active.vector_dims:
        reason = f"the question has {dims} dimensions, the index {active.vector_dims}"
        findings.append(_not_embedded(reason, "memline index"))
        return None
    compared = index.comparison(active, vector)
    if compared is None:
        lacks = f"numpy {lack('numpy') or 'is missing'}, and sqlite-vec: {index.vec_error}"
        what = f"only keywords are searched: {lacks}"
        findings.append(warning("vectors_unavailable", what, remedy("numpy")))
    return compared
