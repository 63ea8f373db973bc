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
from memline.shared.config.schema import AgentSettings, Query
from memline.shared.embedders.protocol import LateVector
from memline.shared.errors import ProviderError
from memline.shared.finding import Finding, warning
from memline.shared.index import identities, ledger
from memline.shared.index.driver import json_ids
from memline.shared.index.identities import IdentityRow
from memline.shared.packages import lack, remedy
from memline.shared.search import vectors
from memline.shared.search.question import analyse
from memline.shared.search.ranking import QueryVector, Ranking
from memline.shared.search.request import SearchRequest, day_bounds, files_within, filters_of, today_of
from memline.shared.search.results import Answer
from memline.shared.search.search_index import SearchIndex

#: Returns what embeds a question under an identity, as the rows of the index allow it now. That is called
#: with no transaction open, and raises a ProviderError: at once, while the provider may not be asked.
Embedder = Callable[[Connection, IdentityRow], Callable[[str], bytes]]


class MemorySearch:
    """Searches for one agent. Safe to use from several threads; close its index when done."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        embedder: Embedder | None = None,
        long_lived: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`embedder`: None searches keywords alone; `long_lived`: keep vectors in memory."""
        self._settings, self._embedder, self._clock = settings, embedder, clock or SystemClock()
        vec = settings.memory.store.vector
        #: What else is read of the index for an answer is read through it.
        self.index = SearchIndex(
            settings.index_path,
            long_lived=long_lived,
            vec_enabled=vec.enabled,
            extension_path=vec.extension_path,
        )

    def ask(self, request: SearchRequest) -> Answer:
        """Answer a question.

        Raises IndexFaults (IndexMissing: there is nothing to search yet) and ConfigError for a bad date.
        """
        memory = self._settings.memory
        is_off = request.source not in ("", *memory.sources)
        answer = retrieve(
            self.index,
            request,
            memory.query,
            embed_query=None if is_off else self._embed_query(),
            sources=memory.sources,
            chunk_tokens=memory.chunking.tokens,
            clock=self._clock,
        )
        if not is_off:
            return answer
        what = f"the source {request.source} is switched off"
        action = "add it to memorySearch.sources (sessions also need experimental.sessionMemory)"
        findings = (warning("source_missing", f"{what} for this agent", action), *answer.findings)
        return replace(answer, notice=f"nothing was searched: {what}", findings=findings)

    def _embed_query(self) -> Callable[[str], QueryVector] | None:
        """Return what embeds a question as the index allows it now; None where it has no vectors."""
        if self._embedder is None:
            return None
        with self.index.snapshot() as connection:
            active = self.index.matches.fact("active", identities.active)
            if active is None or not active.vector_dims:
                return None
            embed = self._embedder(connection, active)

        def embed_query(text: str) -> QueryVector:
            vector = embed(text)
            tokens = vector.tokens if isinstance(vector, LateVector) else b""
            return QueryVector(embedding=vector, identity_id=active.id, tokens=tokens)

        return embed_query


def retrieve(
    index: SearchIndex,
    request: SearchRequest,
    settings: Query,
    *,
    embed_query: Callable[[str], QueryVector] | None = None,
    sources: tuple[str, ...] = (),
    chunk_tokens: int = 400,
    clock: Clock | None = None,
) -> Answer:
    """Answer `request` from `index`, and within `sources` when there are any.

    `embed_query` makes the vector of a question under the index's active identity; None when there is no
    provider to ask. When it raises a ProviderError, or its vector does not fit, keyword hits are returned
    with the finding. A hit is up to one and a half times `chunk_tokens`. Raises IndexFaults, ConfigError for
    a bad `since` or `until`, and BadRequest.
    """
    now = (clock or SystemClock()).now()
    bounds = day_bounds(request, now)
    question = analyse(request.query, today_of(request, now))
    if not question.text:
        return Answer(notice="the question is empty")
    vector, findings = None, list[Finding]()
    if embed_query is not None:
        try:
            vector = embed_query(question.text)
        except ProviderError as error:
            findings.append(_not_embedded(f"the question could not be embedded: {error.message}", error.hint))
    with index.snapshot() as connection:
        matches = index.matches
        active = matches.fact("active", identities.active)
        # What was indexed while a source was switched on is not shown once it is off.
        if sources and not matches.fact("others", lambda reader: ledger.has_others(reader, sources)):
            sources = ()
        is_limited = filters_of(request) or sources
        files = json_ids(files_within(connection, request, bounds, sources)) if is_limited else None
        backend = None if vector is None else _backend(index, active, vector, findings)
        search = Ranking(matches, request, question, _settings_of(request, settings), files)
        best = search.ranked(vector, backend, now)
        hits = search.hits(best, chunk_tokens * 3 // 2)
        return Answer(
            hits=hits,
            mode=search.mode,
            notice=search.notice(hits),
            missing=search.missing,
            findings=tuple(findings),
            provider=active.identity.provider if active else "none",
            model=active.identity.model if active else "",
        )


def _settings_of(request: SearchRequest, settings: Query) -> Query:
    """Return the settings with what a request says otherwise."""
    most, least = request.max_results, request.min_score
    return replace(
        settings,
        max_results=settings.max_results if most is None else most,
        min_score=settings.min_score if least is None else least,
    )


def _not_embedded(reason: str, action: str) -> Finding:
    what = f"only keywords were searched: {reason}"
    return warning("question_not_embedded", what, action or "memline doctor --deep")


def _backend(
    index: SearchIndex, active: IdentityRow | None, vector: QueryVector, findings: list[Finding]
) -> vectors.Comparison | None:
    """Return what compares the vector of a question with those of an index, or None and a finding."""
    if active is None or active.id != vector.identity_id:
        findings.append(_not_embedded("the model was changed meanwhile", "search again"))
        return None
    if (dims := len(vector.embedding) // 4) != active.vector_dims:
        reason = f"the question has {dims} dimensions, the index {active.vector_dims}"
        findings.append(_not_embedded(reason, "memline index"))
        return None
    backend = index.comparison(active, vector.embedding)
    if backend is None:
        lacks = f"numpy {lack('numpy') or 'is missing'}, and sqlite-vec: {index.vec_error}"
        what = f"only keywords are searched: {lacks}"
        findings.append(warning("vectors_unavailable", what, remedy("numpy")))
    return backend
