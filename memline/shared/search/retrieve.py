"""Retrieve the hits of a question.

    analyse -> embed (no lock held, no transaction open) -> one read transaction:
    retrievers -> fuse -> texts of the hits -> snippets

A retriever that cannot work is named in the answer and the others go on; an empty list always says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import Query
from memline.shared.errors import ProviderError
from memline.shared.finding import Trouble
from memline.shared.index import identities, token_rows
from memline.shared.index.driver import json_ids
from memline.shared.search import fusion, retrievers, snippets
from memline.shared.search.fusion import DECIMALS, MMR_POOL, Candidate, Found
from memline.shared.search.keyword import by_keyword
from memline.shared.search.passages import WINDOW, Passage, once_of_both, passages
from memline.shared.search.query import Question, analyse
from memline.shared.search.ranking import KeywordHits
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest, day_bounds, files_within, filters_of, today_of
from memline.shared.search.results import Answer, Hit, lacking
from memline.shared.search.vector_backends import VectorBackend
from memline.shared.sources.paths import SESSIONS
from memline.shared.values import field, replace, value
from memline.shared.words import counted, is_question

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection
    from typing import Any

    from memline.shared.search.late import Evidence

#: Candidates of a retriever for each step of `candidateMultiplier`, 4 by default; conversations, notes and
#: abstracts lost nothing with 60 candidates. How many hits are asked for has no part in it, so that fewer are
#: a prefix of more. Where copies of one text leave no room for so many, MORE times as many are taken.
POOL_STEP, MORE = 25, 8

#: Why a search in a group may find nothing.
PRIVATE = "what is private, MEMORY.md and past conversations, was not searched"

_DETAILS = (
    "SELECT chunks.id, chunks.text, files.path, files.source, chunks.start_line, chunks.end_line,"
    " files.mtime_ns, files.day, chunks.heading, chunks.text_hash,"
    " ifnull((SELECT title FROM names WHERE names.file_id = files.id AND title <> ''), '')"
    " FROM chunks JOIN files ON files.id = chunks.file_id"
    " WHERE chunks.id IN (SELECT value FROM json_each(?))"
)
# CROSS JOIN: the few that are given first.
_COPIES = (
    "SELECT mine.id, path FROM chunks AS mine CROSS JOIN chunks AS other"
    " ON other.text_hash = mine.text_hash AND other.file_id <> mine.file_id"
    " JOIN files ON files.id = other.file_id WHERE mine.id IN (SELECT value FROM json_each(?1))"
    " AND (?2 IS NULL OR other.file_id IN (SELECT value FROM json_each(?2)))"
)


@value
class QueryVector:
    """The vector of a question, and the row id of the identity it can be compared with."""

    embedding: bytes
    identity_id: int
    #: Token vectors of the question (`shared.embedders.token_vectors`); empty without a local model.
    tokens: bytes = b""


class ModelSwitched(Exception):
    """Between embedding the question and reading the index the writer switched to a new model: ask again."""


def retrieve(
    index: SearchIndex,
    request: SearchRequest,
    settings: Query,
    *,
    embed_query: Callable[[str], QueryVector] | None = None,
    base: Answer | None = None,
    sources: tuple[str, ...] = (),
    chunk_tokens: int = 400,
    clock: Clock | None = None,
) -> Answer:
    """Answer `request` from `index`, and within `sources` when there are any.

    `embed_query` makes the vector of a question under the index's active identity; None when there is no
    provider to ask. When it raises a ProviderError, or its vector does not fit, keyword hits are returned
    with the trouble. `base`: the answer so far, what the caller knows; its troubles come first. A hit is up
    to one and a half times `chunk_tokens`.
    Raises ModelSwitched, IndexFaults, ConfigError for a bad `since` or `until`, and BadRequest.
    """
    base = base or Answer()
    troubles = list(base.troubles)
    settings = replace(
        settings,
        max_results=settings.max_results if request.max_results is None else max(1, request.max_results),
        min_score=settings.min_score if request.min_score is None else request.min_score,
    )
    now = (clock or SystemClock()).now()
    bounds = day_bounds(request, now)
    steps = _Steps()
    question = analyse(request.query, today_of(request, now))
    if not question.text:
        base = replace(base, notice="the question is empty")
    else:
        vector = None
        if embed_query is not None:
            try:
                vector = embed_query(question.text)
            except ProviderError as error:
                troubles.append(_trouble("question_not_embedded", error.message, error.hint))
        steps.end("question")
        with index.snapshot() as connection:
            is_limited = filters_of(request) or sources
            files = files_within(connection, request, bounds, sources) if is_limited else None
            pool = POOL_STEP * settings.hybrid.candidate_multiplier
            for size in (pool, MORE * pool):
                search = _Search(
                    index=index,
                    connection=connection,
                    request=request,
                    question=question,
                    settings=settings,
                    files=files,
                    pool=max(size, settings.max_results),
                    now=now,
                    troubles=[],
                    steps=steps,
                )
                hits = search.hits(search.ranked(vector), chunk_tokens * 3 // 2 if request.merge else 0)
                if len(hits) >= settings.max_results or len(search.keyword.hits) < search.pool:
                    break
            missing, meant = search.keyword.missing, search.keyword.meant
            reason = lacking(missing, meant) if hits else search.explain_empty()
            unseen = "" if hits or request.private else PRIVATE
            notice = "; ".join(filter(None, (reason, search.explain_days(), unseen)))
            troubles += search.troubles
            steps.end("snippets")
        base = replace(base, hits=hits, mode=search.mode, notice=notice, missing=missing)
    return replace(
        base,
        timings=steps.took_ms if request.explain else {},
        troubles=tuple(troubles),
    )


def _trouble(code: str, reason: str, action: str = "") -> Trouble:
    return Trouble(code=code, details={"reason": reason}, action=action)


class _Steps:
    """Measure the steps of a search, one after another."""

    def __init__(self) -> None:
        #: Name -> ms.
        self.took_ms: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, name: str) -> None:
        """Give a name to the time since the last end."""
        now = time.perf_counter()
        self.took_ms[name] = round(self.took_ms.get(name, 0.0) + (now - self._last) * 1000, 3)
        self._last = now


@value(frozen=False)
class _Search:
    """The state of one search; its steps fill it in."""

    index: SearchIndex
    connection: Connection
    request: SearchRequest
    question: Question
    settings: Query
    #: Ids of the files to stay in; None for all.
    files: list[int] | None
    #: Candidates of each retriever.
    pool: int
    now: float
    troubles: list[Trouble]
    steps: _Steps
    #: hybrid, keyword or vector.
    mode: str = "keyword"
    keyword: KeywordHits = field(default_factory=KeywordHits)
    #: Lists the words of the question that met words of a chunk (id, text); None without token vectors.
    meetings: Callable[[int, str], list[dict[str, Any]]] | None = None
    #: What each line of a chunk (id, text) says of the question; None without token vectors.
    line_evidence: Callable[[int, str], list[Evidence]] | None = None
    #: Texts of the chunks that were looked up.
    texts: dict[int, str] = field(default_factory=dict)
    #: Looks up the candidates behind those that `ranked` returned, in their order.
    rest: Callable[[], list[Candidate]] = list
    #: SHA-256 of the texts that stand in the list.
    shown: set[bytes] = field(default_factory=set)
    #: Whether there is a file of the days that the question names.
    has_dated: bool = False
    #: Hits of the vector retriever alone that were below `minScore`.
    weak: int = 0

    def ranked(self, vector: QueryVector | None) -> list[Candidate]:
        """Ask the retrievers, fuse their hits and sort the best of them."""
        connection, question, hybrid = self.connection, self.question, self.settings.hybrid
        file_ids, pool = None if self.files is None else json_ids(self.files), self.pool
        self.steps.end("filters")
        backend = None if vector is None else self._vector_backend(vector)
        links = self.index.links
        if vector is not None:
            links.follow(connection, vector.identity_id)
        # The first time, vectors are read into memory.
        self.steps.end("vector")
        if has_keyword := hybrid.enabled or backend is None:
            self.keyword = by_keyword(connection, question, file_ids, pool, self.index.postings)
        self.steps.end("keyword")
        self.mode = "hybrid" if has_keyword and backend else "vector" if backend else "keyword"
        by_vector = retrievers.by_vector(connection, backend, links, file_ids, pool) if backend else ()
        self.steps.end("vector")
        by_name = retrievers.by_name(connection, question, self.keyword, self.files, pool)
        self.steps.end("path")
        found = Found(self.keyword.hits, by_vector, by_name)
        if question.days or question.tags:
            lifted, self.has_dated = retrievers.lifted(connection, question, self.files, found.ids, pool)
            found.lift(lifted)
        if backend is not None and vector is not None:
            # The true cosine of what the vector retriever did not return, so that both halves of a score
            # count.
            unknown = [chunk_id for chunk_id in found.ids if chunk_id not in found.cosines]
            cosines = retrievers.cosines(connection, backend, links, unknown)
            found.cosines.update((chunk_id, round(cosine, DECIMALS)) for chunk_id, cosine in cosines.items())
            if vector.tokens and hybrid.late:
                self._compare_tokens(found, vector)
            if not is_question(question.text):
                found.beginnings = retrievers.beginnings(connection, found.ids)
        # Without words to be found there is nothing but the day or the tag that was asked for.
        quality = self.keyword.quality or float(backend is None)
        found.fuse(hybrid, keyword=has_keyword, vector=backend is not None, quality=quality)
        return self._ordered(found)

    def _compare_tokens(self, found: Found, vector: QueryVector) -> None:
        """Set the late interaction of candidates; one without token vectors has its cosine in the place."""
        vector_of = self.index.links.vectors_of(self.connection, found.ids)
        tokens_of = token_rows.read(self.connection, set(vector_of.values()))
        if not tokens_of:
            return
        # Here, because only local models have token vectors, and numpy costs 110 ms.
        from memline.shared.search import late

        fitted = token_rows.projection(self.connection, vector.identity_id)
        rarity = {**dict.fromkeys(self.question.light, 0.0), **self.keyword.rarity}
        asked = late.question_tokens(self.question.text, vector.tokens, fitted, rarity)
        if asked is None:
            return
        packed = {each: tokens_of[row_id] for each, row_id in vector_of.items() if row_id in tokens_of}
        self.meetings = lambda chunk_id, text: (
            late.meetings(asked, packed[chunk_id], fitted, text) if chunk_id in packed else []
        )
        self.line_evidence = lambda chunk_id, text: (
            late.line_evidence(asked, packed[chunk_id], fitted, text) if chunk_id in packed else []
        )
        scores = late.scores(asked, [*packed.items()], fitted)
        best = max(scores.values(), default=0.0) or 1.0
        for chunk_id, cosine in found.cosines.items():
            score = scores.get(chunk_id, min(max(cosine, 0.0), best))
            found.late[chunk_id] = round(score, DECIMALS), round(score / best, DECIMALS)

    def _vector_backend(self, vector: QueryVector) -> VectorBackend | None:
        active = identities.active(self.connection)
        if active is None or active.id != vector.identity_id:
            raise ModelSwitched
        if (dims := len(vector.embedding) // 4) != active.vector_dims:
            reason = f"the question has {dims} dimensions, the index {active.vector_dims}"
            self.troubles.append(_trouble("dimensions_differ", reason))
            return None
        backend = self.index.vector_backend(self.connection, active, vector.embedding)
        if backend is None:
            reason = self.index.vec_error or "its table is out of date"
            self.troubles.append(_trouble("vectors_unavailable", reason))
        return backend

    def _ordered(self, found: Found) -> list[Candidate]:
        decay, mmr = self.settings.hybrid.temporal_decay, self.settings.hybrid.mmr
        first = among = found.at_least(self.settings.min_score)
        self.weak = len(found.ids) - len(among)
        # More than are shown: some become one passage.
        least = MMR_POOL if mmr.enabled else WINDOW
        wanted = max(2 * self.settings.max_results, least)
        if not decay.enabled:
            # Age changes nothing, so the file of what is far behind need not be looked up.
            first = found.top_k(among, wanted)
        ranked = self._in_order(found.candidates(first))
        if len(first) < len(among):
            known = set(first)
            rest = [chunk_id for chunk_id in among if chunk_id not in known]
            self.rest = lambda: self._in_order(found.candidates(rest))
        ranked = ranked if self.request.source == SESSIONS else once_of_both(ranked, self.texts)
        self.steps.end("fusion")
        if mmr.enabled:
            ranked = fusion.diversify(ranked, self.texts, mmr.lambda_, wanted)
        self.steps.end("fusion")
        return ranked

    def _in_order(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Look candidates up and sort them, without what says just the same as one before it."""
        self._look_up(candidates)
        if (decay := self.settings.hybrid.temporal_decay).enabled:
            fusion.apply_decay(candidates, self.now, decay.half_life_days)
        ranked = sorted(candidates, key=lambda candidate: candidate.order)
        first = {each.text_hash: each for each in reversed(ranked) if each.text_hash not in self.shown}
        self.shown.update(first)
        return [each for each in ranked if first.get(each.text_hash) is each]

    def _look_up(self, candidates: Sequence[Candidate]) -> None:
        """Fill in what is shown of candidates, and read their texts."""
        by_id = {candidate.chunk_id: candidate for candidate in candidates}
        for chunk_id, text, *details in self.connection.execute(_DETAILS, (json_ids(by_id),)):
            self.texts[chunk_id] = text
            each = by_id[chunk_id]
            each.path, each.source, each.start_line, each.end_line, *details = details
            each.mtime_ns, each.day, each.heading, each.text_hash, title = details
            if title and each.heading.partition(" > ")[0] != title:
                each.heading = f"{title} > {each.heading}" if each.heading else title

    def hits(self, ranked: Sequence[Candidate], max_tokens: int) -> tuple[Hit, ...]:
        """Make hits of the best candidates, with the part of their text that answers."""
        wanted = self.settings.max_results
        window = max(2 * wanted, WINDOW)
        chosen = passages(ranked[:window], self.texts, wanted=wanted, max_tokens=max_tokens)
        if len(chosen) < wanted or len(ranked) < window:
            ranked = [*ranked, *self.rest()]
            chosen = passages(ranked, self.texts, wanted=wanted, max_tokens=max_tokens)
        texts = {each.best.chunk_id: each.text for each in chosen}
        marks = self.index.marker.marks(self.keyword, texts)
        weights = snippets.rarity(marks)
        explain = self.request.explain
        terms = snippets.matched_terms(self.connection, self.keyword, list(texts)) if explain else {}
        copies: dict[int, set[str]] = {}
        files = None if self.files is None else json_ids(self.files)
        for chunk_id, path in self.connection.execute(_COPIES, (json_ids(texts), files)):
            copies.setdefault(chunk_id, set()).add(path)
        hits = []
        for passage in chosen:
            best, mine = passage.best, marks[passage.best.chunk_id]
            text, in_text, skipped = snippets.without_front_matter(passage.text, mine)
            part = snippets.snippet(text, in_text, weights, self._by_meaning(passage)[skipped:])
            hit = Hit(
                path=best.path,
                start_line=passage.start_line,
                end_line=passage.end_line,
                score=best.score,
                vector_score=best.cosine or 0.0,
                text_score=best.coverage,
                snippet=part,
                source=best.source,
                heading=best.heading,
                also_in=tuple(sorted(copies.get(best.chunk_id, ()))),
                matched=snippets.matched(passage.text, mine, part),
                explanation=self._explanation(best, terms[best.chunk_id]) if explain else None,
            )
            hits.append(hit)
        return tuple(hits)

    def _by_meaning(self, passage: Passage) -> list[Evidence]:
        """Return what each line of a passage says of the question; empty without token vectors."""
        if self.line_evidence is None or len(passage.text) <= snippets.MAX_CHARS:
            return []
        lines: list[Evidence] = [[] for _ in range(passage.text.count("\n") + 1)]
        # Where chunks overlap, the line of the best counts.
        for each in reversed((passage.best, *passage.joined)):
            for at, said in enumerate(self.line_evidence(each.chunk_id, self.texts[each.chunk_id])):
                if 0 <= (line := each.start_line + at - passage.start_line) < len(lines):
                    lines[line] = said
        return lines

    def _explanation(self, best: Candidate, terms: list[str]) -> dict[str, Any]:
        met = self.meetings(best.chunk_id, self.texts[best.chunk_id]) if self.meetings else []
        return best.explanation(terms=terms, met=met, fusion=self.settings.hybrid.fusion)

    def explain_days(self) -> str:
        """Say which days the question names, and what that does; empty when it names none."""
        days = ", ".join(dict.fromkeys(str(each) for each in self.question.days))
        said = f"notes of {days} are lifted" if self.has_dated else f"no note is of {days}"
        return said if days else ""

    def explain_empty(self) -> str:
        """Give the reason for an empty list, as a notice or among the troubles."""
        if self.connection.execute("SELECT 1 FROM chunks LIMIT 1").fetchone() is None:
            self.troubles.append(Trouble(code="index_empty"))
            return ""
        if self.files == []:
            filters = ", ".join(filters_of(self.request)).replace("_", "-")
            return f"no file is within the filters ({filters or 'source'})"
        if self.weak:
            weak = f"only {counted(self.weak, 'hit')} by meaning, weaker than minScore"
            return f"no term of the question was found, and {weak} {self.settings.min_score:g}"
        if not self.question.terms and self.mode == "keyword":
            return "the question has no word to look for"
        return "nothing in the notes matches"
