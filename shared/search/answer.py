"""A search from question to answer.

    analyse -> embed (no lock held, no transaction open) -> one read transaction: legs -> fuse -> rerank ->
    texts of the hits -> snippets

A leg that is not there is named in the answer and the others go on; an empty list always says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING

from shared.clock import Clock, SystemClock
from shared.config.schema import Query
from shared.errors import ProviderError
from shared.search import legs, snippets
from shared.search.fusion import Candidate
from shared.search.query import Question, analyse
from shared.search.ranking import Findings, QueryVector, find, texts_of
from shared.search.reader import SearchIndex
from shared.search.results import Answer, Behind, Explanation, Hit, SearchRequest
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.search.scope import Scope

_TIER_WORDS = {0: "", legs.STEM: "stem", legs.NAME: "name", legs.PATH: "path"}


@value
class Context:
    """What the caller knows and every answer carries."""

    provider: str = "none"
    model: str = ""
    fallback: dict[str, str] | None = None
    behind: Behind = field(default_factory=Behind)
    #: The sources that may be searched, when the index holds others as well; empty: all of it.
    sources: tuple[str, ...] = ()
    #: What is wrong with the provider before anything is asked of it, and what to do about it.
    warning: str = ""
    action: str = ""


def search(
    index: SearchIndex,
    request: SearchRequest,
    settings: Query,
    *,
    embed_query: Callable[[str], bytes] | None = None,
    context: Context | None = None,
    clock: Clock | None = None,
) -> Answer:
    """Answer `request` from `index`.

    `embed_query` gives the vector of a question under the index's active identity; None when there is no
    provider to ask. When it raises a ProviderError, or its vector does not fit, keyword hits still come, with
    a warning. Raises IndexFaults, and ConfigError for a `since` or `until` that is no date.
    """
    context = context or Context()
    settings = replace(
        settings,
        max_results=settings.max_results if request.max_results is None else max(1, request.max_results),
        min_score=settings.min_score if request.min_score is None else request.min_score,
    )
    clock = clock or SystemClock()
    scope = _scope(request, clock, context.sources)
    question = analyse(request.query)
    findings = Findings()
    hits: tuple[Hit, ...] = ()
    if question.text:
        vector = _embed(index, question, embed_query, findings)
        with index.snapshot() as connection:
            files = None if scope is None else scope.files(connection)
            find(
                index,
                connection,
                question,
                vector,
                files=files,
                settings=settings,
                clock=clock,
                findings=findings,
            )
            hits = _hits(connection, findings, settings, explain=request.explain)
            if not hits:
                _say_why(connection, question, files, settings, findings)
    else:
        findings.notice = "the question is empty"
    troubles = [(context.warning, context.action)] if context.warning else []
    troubles += findings.troubles
    return Answer(
        hits=hits,
        mode=findings.mode,
        provider=context.provider,
        model=context.model,
        fallback=context.fallback,
        behind=context.behind,
        warning="; ".join(warning for warning, _ in troubles),
        action=next((action for _, action in troubles if action), ""),
        notice=findings.notice,
    )


def _scope(request: SearchRequest, clock: Clock, sources: tuple[str, ...]) -> Scope | None:
    """What the search is limited to; None when it is not."""
    if not (request.source or request.path_glob or request.since or request.until or sources):
        return None
    from shared.search.scope import scope_of

    return scope_of(request, clock.now(), sources)


def _embed(
    index: SearchIndex,
    question: Question,
    embed_query: Callable[[str], bytes] | None,
    findings: Findings,
) -> QueryVector | None:
    if embed_query is None:
        return None
    active = index.active_identity()
    if active is None or not active.vector_dims:
        findings.troubles.append(("no vector is ready yet, so only keywords were searched", "memline index"))
        return None
    try:
        value = embed_query(question.text)
    except ProviderError as error:
        findings.troubles.append(
            (
                f"only keywords were searched: the question could not be embedded: {error.message}",
                error.hint or "check the embedding provider (memline doctor), then search again",
            )
        )
        return None
    if len(value) != 4 * active.vector_dims:
        findings.troubles.append(
            (
                f"only keywords were searched: the question has {len(value) // 4} dimensions,"
                f" the index {active.vector_dims}",
                "memline index",
            )
        )
        return None
    return QueryVector(value=value, identity_id=active.id)


def _hits(connection: Connection, findings: Findings, settings: Query, *, explain: bool) -> tuple[Hit, ...]:
    chosen = findings.ranked[: settings.max_results]
    texts = texts_of(connection, chosen)
    found = snippets.marks(connection, findings.keyword, texts)
    weights = snippets.rarity(found)
    matched = legs.matched_terms(connection, findings.keyword, list(texts)) if explain else {}
    return tuple(
        Hit(
            path=one.path,
            start_line=one.start_line,
            end_line=one.end_line,
            score=one.score,
            vector_score=one.cosine or 0.0,
            text_score=one.keyword,
            snippet=snippets.snippet(texts[one.chunk_id], found[one.chunk_id], weights),
            source=one.source,
            explanation=_explain(one, matched, settings) if explain else None,
        )
        for one in chosen
    )


def _explain(one: Candidate, matched: dict[int, list[str]], settings: Query) -> Explanation:
    return Explanation(
        terms=tuple(matched.get(one.chunk_id, ())),
        bm25=one.bm25,
        keyword=one.keyword,
        keyword_rank=one.keyword_rank,
        cosine=one.cosine,
        vector_rank=one.vector_rank,
        named=_TIER_WORDS[one.named],
        fused=one.fused,
        decay=one.decay,
        mmr=one.mmr,
        fusion=settings.hybrid.fusion,
    )


def _say_why(
    connection: Connection,
    question: Question,
    files: list[int] | None,
    settings: Query,
    findings: Findings,
) -> None:
    """An empty list never comes without a reason."""
    if connection.execute("SELECT 1 FROM chunks LIMIT 1").fetchone() is None:
        findings.troubles.append(("the index holds no notes", "memline index"))
    elif files == []:
        findings.notice = "no file is within the filters (source, path, since, until)"
    elif findings.noise:
        findings.notice = (
            f"no term of the question was found, and {findings.noise} hits by meaning are weaker than"
            f" minScore {settings.min_score:g}"
        )
    elif not question.terms and findings.mode == "keyword":
        findings.notice = "the question has no word to look for"
    else:
        findings.notice = "nothing in the notes matches"
