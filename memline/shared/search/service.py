"""Search one agent's memory.

    question -> vector (no lock held, no transaction open) -> one read transaction:
    score words, compare vectors -> lift -> fuse -> passages -> snippets

A part that cannot work is named in the answer and the others go on; an empty list always says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from sqlite3 import Connection
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings, Query
from memline.shared.embedders.protocol import LateVector
from memline.shared.errors import ProviderError
from memline.shared.finding import Finding, warning
from memline.shared.index import identities, ledger, token_rows
from memline.shared.index.driver import json_ids
from memline.shared.index.identities import IdentityRow
from memline.shared.packages import lack, remedy
from memline.shared.search import fusion, vectors
from memline.shared.search.lifts import Lifts, lifts_of
from memline.shared.search.matches import CHUNKS, Matches
from memline.shared.search.passages import WINDOW, Passage, passages
from memline.shared.search.question import Question, Term, analyse
from memline.shared.search.request import SearchRequest, day_bounds, files_within, filters_of, today_of
from memline.shared.search.results import Answer, Hit, lacking
from memline.shared.search.scorer import read, score
from memline.shared.search.search_index import SearchIndex
from memline.shared.search.snippets import MAX_CHARS, matched, snippet
from memline.shared.search.terms import Row, Words
from memline.shared.words import counted, is_question

#: Candidates by vectors for each step of `candidateMultiplier`, and of words twice as many, for copies. How
#: many hits are asked for has no part in it, so that fewer are a prefix of more.
POOL_STEP, OF_WORDS = 25, 2

#: Why a search in a group may find nothing.
PRIVATE = "what is private, MEMORY.md and past conversations, was not searched"

# CROSS JOIN: the few that are given first.
_COPIES = (
    "SELECT mine.id, path FROM chunks AS mine CROSS JOIN chunks AS other"
    " ON other.text_hash = mine.text_hash AND other.file_id <> mine.file_id"
    " JOIN files ON files.id = other.file_id WHERE mine.id IN (SELECT value FROM json_each(?1))"
    " AND (?2 IS NULL OR other.file_id IN (SELECT value FROM json_each(?2)))"
)

#: How much a line says of each token of a question.
Evidence = list[tuple[int, float]]


class QuestionEmbedder(Protocol):
    """Makes the vector of a question, and knows what that costs and what may not be sent; thread-safe."""

    def of(self, connection: Connection, active: IdentityRow) -> Callable[[str], bytes]:
        """Return what embeds a question under an identity, as the rows of the index allow it now.

        The function is called with no transaction open. It raises a ProviderError: at once, while the
        provider may not be asked.
        """

    def close(self) -> None:
        """Close the connection to the provider."""


class QueryVector(Struct, frozen=True, kw_only=True):
    """The vector of a question, and the row id of the identity it can be compared with."""

    embedding: bytes
    identity_id: int
    #: Token vectors of the question (`shared.embedders.token_vectors`); empty without a local model.
    tokens: bytes = b""


class MemorySearch:
    """Searches for one agent. Safe to use from several threads; close it when done."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        questions: Callable[[], QuestionEmbedder] | None = None,
        long_lived: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`questions`: called once the index has vectors; None searches keywords alone.

        `long_lived`: keep vectors in memory.
        """
        self._settings, self._questions, self._clock = settings, questions, clock or SystemClock()
        #: What else is read of the index for an answer is read through it.
        self.index = SearchIndex.of(settings, long_lived=long_lived)
        self._embedder: QuestionEmbedder | None = None

    def close(self) -> None:
        """Close the index and the connection to the provider."""
        self.index.close()
        if self._embedder is not None:
            self._embedder.close()

    def ask(self, request: SearchRequest) -> Answer:
        """Answer a question.

        Raises IndexFaults (IndexMissing: there is nothing to search yet) and ConfigError for a bad date.
        """
        memory = self._settings.memory
        off: tuple[Finding, ...] = ()
        if request.source not in ("", *memory.sources):
            off = (
                warning(
                    "source_missing",
                    f"the source {request.source} is switched off for this agent",
                    "add it to memorySearch.sources (sessions also need experimental.sessionMemory)",
                ),
            )
        answer = retrieve(
            self.index,
            request,
            memory.query,
            embed_query=None if off else self._embed_query(),
            met=off,
            sources=memory.sources,
            chunk_tokens=memory.chunking.tokens,
            clock=self._clock,
        )
        if not off:
            return answer
        return replace(answer, notice=f"nothing was searched: the source {request.source} is switched off")

    def _embed_query(self) -> Callable[[str], QueryVector] | None:
        """Return what embeds a question as the index allows it now; None where it has no vectors."""
        if self._questions is None:
            return None
        with self.index.snapshot() as connection:
            active = self.index.matches.fact("active", identities.active)
            if active is None or not active.vector_dims:
                return None
            self._embedder = self._embedder or self._questions()
            embed = self._embedder.of(connection, active)

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
    met: tuple[Finding, ...] = (),
    sources: tuple[str, ...] = (),
    chunk_tokens: int = 400,
    clock: Clock | None = None,
) -> Answer:
    """Answer `request` from `index`, and within `sources` when there are any.

    `embed_query` makes the vector of a question under the index's active identity; None when there is no
    provider to ask. When it raises a ProviderError, or its vector does not fit, keyword hits are returned
    with the finding, after those that the caller `met`. A hit is up to one and a half times `chunk_tokens`.
    Raises IndexFaults, ConfigError for a bad `since` or `until`, and BadRequest.
    """
    now = (clock or SystemClock()).now()
    bounds = day_bounds(request, now)
    question = analyse(request.query, today_of(request, now))
    if not question.text:
        return Answer(notice="the question is empty", findings=met)
    vector, findings = None, list(met)
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
        files = files_within(connection, request, bounds, sources) if is_limited else None
        backend = None
        if vector is not None:
            backend = _backend(index, active, vector, findings)
        search = _Search(matches, request, question, settings, files)
        best = search.ranked(vector, backend, now)
        hits = search.hits(best, chunk_tokens * 3 // 2)
        answer = Answer(
            hits=hits,
            mode=search.mode,
            notice=search.notice(hits),
            missing=search.missing,
            findings=tuple(findings),
        )
    if active is None:
        return answer
    return replace(answer, provider=active.identity.provider, model=active.identity.model)


def _not_embedded(reason: str, action: str) -> Finding:
    return warning(
        "question_not_embedded", f"only keywords were searched: {reason}", action or "memline doctor --deep"
    )


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
    backends = index.backends
    if (backend := backends.choose(index.matches.connection, active, vector.embedding)) is None:
        lacks = f"numpy {lack('numpy') or 'is missing'}, and sqlite-vec: {backends.vec_error}"
        findings.append(
            warning("vectors_unavailable", f"only keywords are searched: {lacks}", remedy("numpy"))
        )
    return backend


class _Search(Struct):
    """The state of one search; its steps fill it in."""

    matches: Matches
    request: SearchRequest
    question: Question
    settings: Query
    #: Ids of the files to stay in, None for all.
    files: list[int] | None
    #: hybrid, keyword or vector.
    mode: str = "keyword"
    #: Words of the question that nothing has, as typed.
    missing: tuple[str, ...] = ()
    #: What the words say; empty where vectors alone are asked.
    words: Words = field(default_factory=Words)
    lifts: Lifts = field(default_factory=Lifts)
    #: Chunk -> cosine, late interaction, and what orders it.
    cosines: dict[int, float] = {}
    late: dict[int, float] = {}
    fused: dict[int, float] = {}
    #: Chunks that were read.
    rows: dict[int, Row] = {}
    #: Lists what each line of a chunk says of the question, with token vectors.
    line_evidence: Callable[[Row], list[Evidence]] | None = None

    @property
    def wanted(self) -> int:
        given = self.request.max_results
        return self.settings.max_results if given is None else max(1, given)

    @property
    def file_ids(self) -> str | None:
        return None if self.files is None else json_ids(self.files)

    def ranked(self, vector: QueryVector | None, backend: vectors.Comparison | None, now: float) -> list[int]:
        """Score and order the candidates, the best first."""
        hybrid, matches, starts = self.settings.hybrid, self.matches, set[int]()
        pool = max(POOL_STEP * hybrid.candidate_multiplier, self.wanted)
        words = score(matches, self.question, self.file_ids, OF_WORDS * pool)
        self.lifts = lifts_of(matches, self.question, words, self.files, pool)
        by_words = hybrid.enabled or backend is None
        if by_words:
            self.words, self.missing = words, _as_typed(words.missing, self.question.terms)
        if backend is not None and vector is not None:
            self.mode = "hybrid" if by_words else "vector"
            places = self._compare(backend, vector, words, pool)
            if not is_question(self.question.text):
                starts = {each for each, place in places.items() if place.is_first}
        cosines = self.cosines if backend is not None else None
        by = self.words if by_words else None
        self.fused = fusion.fuse(by, cosines, self.late, self.lifts.of, starts, hybrid)
        sure = self.words.sums.keys() | self.lifts.of.keys()
        best = [each for each in self.fused if each in sure or self._is_near(each)]
        self.rows = words.rows
        if hybrid.temporal_decay.enabled:
            # Age may bring up any of them.
            self.rows |= read(matches, set(best).difference(self.rows))
            rows = [self.rows[each] for each in best]
            fusion.decay(self.fused, rows, now, hybrid.temporal_decay.half_life_days)
        return sorted(best, key=lambda each: (-self.fused[each], each))

    def _is_near(self, chunk_id: int) -> bool:
        given = self.request.min_score
        return self.cosines.get(chunk_id, 0.0) >= (self.settings.min_score if given is None else given)

    def _compare(
        self, backend: vectors.Comparison, vector: QueryVector, words: Words, pool: int
    ) -> dict[int, vectors.Place]:
        """Set the cosines of the nearest chunks and of what the words found, and their late interaction.

        Returns where these chunks stand.
        """
        matches, connection = self.matches, self.matches.connection
        cosine_of = dict(backend.top(pool, self.file_ids))
        nearest = vectors.chunks_of(matches, cosine_of)
        places = vectors.places(matches, vector.identity_id, nearest)
        if self.files is not None:
            allowed = {*self.files}
            nearest = [each for each in nearest if places[each].file_id in allowed]
        others = {*self.words.sums, *self.lifts.of}
        places = vectors.places(matches, vector.identity_id, {*nearest[:pool], *others})
        known = {each: place.vector_id for each, place in places.items() if place.vector_id}
        cosine_of |= backend.cosines({*known.values()}.difference(cosine_of))
        self.cosines = {
            each: round(cosine_of[row_id], fusion.DECIMALS)
            for each, row_id in known.items()
            if row_id in cosine_of
        }
        if not vector.tokens or not (tokens_of := token_rows.read(connection, known.values())):
            return places
        # Here, because only local models have token vectors, and numpy costs 110 ms.
        from memline.shared.search import late

        fitted = token_rows.projection(connection, vector.identity_id)
        rarity = dict.fromkeys(self.question.light, 0.0) | words.rarity
        asked = late.question_tokens(self.question.text, vector.tokens, fitted, rarity)
        if asked is not None:
            packed = {each: tokens_of[row_id] for each, row_id in known.items() if row_id in tokens_of}
            scores = late.scores(asked, [*packed.items()], fitted)
            self.late = {chunk_id: round(each, fusion.DECIMALS) for chunk_id, each in scores.items()}
            self.line_evidence = lambda row: (
                late.line_evidence(asked, packed[row.id], fitted, row.text) if row.id in packed else []
            )
        return places

    def _first(self, best: Sequence[int], count: int) -> list[Row]:
        """Read the first candidates, each text once; ties by path and line. All where there are fewer."""
        mmr, upto = self.settings.hybrid.mmr, count
        while True:
            while upto < len(best) and self.fused[best[upto]] == self.fused[best[upto - 1]]:
                upto += 1
            if new := [each for each in best[:upto] if each not in self.rows]:
                self.rows |= read(self.matches, new)
            rows = [self.rows[each] for each in best[:upto]]
            rows.sort(key=lambda row: (-self.fused[row.id], row.file.path, row.start, row.id))
            rows = list({row.text_hash: row for row in reversed(rows)}.values())[::-1]
            if len(rows) >= count or upto >= len(best):
                return fusion.diversify(rows, self.fused, mmr.lambda_) if mmr.enabled else rows[:count]
            # Copies of one text left no room.
            upto *= 2

    def hits(self, best: Sequence[int], max_tokens: int) -> tuple[Hit, ...]:
        """Make hits of the best candidates, with the part of their text that answers."""
        asked = {term for term in self.question.terms if term.typed}
        is_missing = asked and asked.issubset(self.words.missing)
        if is_missing and not self.lifts.of and not any(map(self._is_near, self.cosines)):
            # Nothing but beginnings and corrected words: a near miss.
            best = best[:1]
        count = fusion.MMR_POOL if self.settings.hybrid.mmr.enabled else WINDOW
        chosen = passages(self._first(best, count), wanted=self.wanted, max_tokens=max_tokens)
        while len(chosen) < self.wanted and count < len(best):
            count += WINDOW
            chosen = passages(self._first(best, count), wanted=self.wanted, max_tokens=max_tokens)
        copies: dict[int, set[str]] = {}
        values = (json_ids(each.best.id for each in chosen), self.file_ids)
        for chunk_id, path in self.matches.connection.execute(_COPIES, values):
            copies.setdefault(chunk_id, set()).add(path)
        quality = self._quality()
        return tuple(self._hit(each, sorted(copies.get(each.best.id, ())), quality) for each in chosen)

    def _hit(self, passage: Passage, copies: Sequence[str], quality: float) -> Hit:
        best, words = passage.best, self.words
        part = snippet(passage.lines, words.needles, self._by_meaning(passage))
        is_of_file = len(passage.lines) == passage.end - passage.start + 1
        title, root = best.file.title, math.sqrt(2 * self.fused[best.id] * quality)
        has_title = not title or best.heading.partition(" > ")[0] == title
        return Hit(
            path=best.file.path,
            start_line=passage.start,
            end_line=passage.end,
            shown=(passage.start + part.first, passage.start + part.last) if is_of_file else (0, 0),
            # It falls with the order, and is lower where less of the question was found.
            score=round(root / (root + 1), fusion.DECIMALS),
            vector_score=self.cosines.get(best.id, 0.0),
            text_score=round(words.coverage(best.id), fusion.DECIMALS),
            snippet=part.text,
            source=best.file.source,
            heading=best.heading if has_title else " > ".join(filter(None, (title, best.heading))),
            also_in=tuple(copies),
            matched=matched(part.text, words.needles),
            explanation=self._explanation(best.id) if self.request.explain else None,
        )

    def _explanation(self, chunk_id: int) -> dict[str, Any]:
        return {
            "terms": [each.term.label for each in self.words.lookups if each.weight(chunk_id)],
            "sum": round(self.words.sums.get(chunk_id, 0.0), fusion.DECIMALS),
            "cosine": self.cosines.get(chunk_id),
            "late": self.late.get(chunk_id),
            "rank": 1 + sum(other > self.fused[chunk_id] for other in self.fused.values()),
        }

    def _quality(self) -> float:
        """Return how much of the question was found, as a share."""
        if self.mode == "vector":
            return 1.0
        best, hybrid = max(self.words.sums.values(), default=0.0), self.settings.hybrid
        quality = best / (best + self.words.mass)
        if self.cosines:
            weights = hybrid.text_weight + hybrid.vector_weight or 1.0
            quality = (hybrid.text_weight * quality + hybrid.vector_weight) / weights
        return quality or 1.0

    def _by_meaning(self, passage: Passage) -> list[Evidence]:
        """Return what each line of a passage says of the question; empty without token vectors."""
        if self.line_evidence is None or sum(map(len, passage.lines)) <= MAX_CHARS:
            return []
        lines: list[Evidence] = [[] for _ in passage.lines]
        # Where chunks overlap, the line of the best counts.
        for row in reversed(passage.chunks):
            for at, said in enumerate(self.line_evidence(row), row.start - passage.start):
                if 0 <= at < len(lines):
                    lines[at] = said
        return lines

    def notice(self, hits: Sequence[Hit]) -> str:
        """Say why the list is as it is: words and days that no note has, private notes that were not read."""
        days = ", ".join(dict.fromkeys(map(str, self.question.days)))
        said = [f"no note is of {days}"] if days and not self.lifts.has_dated else []
        if hits:
            said.append(lacking(self.missing, self.words.meant))
        else:
            said += (self._reason_of_nothing(), "" if self.request.private else PRIVATE)
        return "; ".join(filter(None, said))

    def _reason_of_nothing(self) -> str:
        if not self.matches.total(CHUNKS):
            return "the index has no notes"
        if self.files == []:
            filters = ", ".join(filters_of(self.request)).replace("_", "-")
            return f"no file is within the filters ({filters or 'source'})"
        if self.fused:
            given = self.request.min_score
            least = self.settings.min_score if given is None else given
            weak = f"only {counted(len(self.fused), 'hit')} by meaning, weaker than minScore {least:g}"
            return f"no term of the question was found, and {weak}"
        if not self.question.terms and self.mode == "keyword" and not self.question.days:
            return "the question has no word to look for"
        return "nothing in the notes matches"


def _as_typed(missing: Sequence[Term], terms: Sequence[Term]) -> tuple[str, ...]:
    """Write missing terms as they were typed, a run of CJK characters where none of its pairs was found."""
    found = {term.typed for term in terms if term not in missing}
    return tuple(dict.fromkeys(term.typed for term in missing if term.typed not in found))
