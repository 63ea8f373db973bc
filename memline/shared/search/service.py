"""Search one agent's memory.

    question -> vector (no lock held, no transaction open) -> one read transaction:
    score words, compare vectors -> lift -> fuse -> passages -> snippets

A part that cannot work is named in the answer and the others go on; an empty list always says why.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from sqlite3 import Connection

from msgspec import Struct, field
from msgspec.structs import replace

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import Query
from memline.shared.embedders.protocol import LateVector
from memline.shared.errors import ProviderError
from memline.shared.finding import Finding, warning
from memline.shared.index import token_rows
from memline.shared.index.driver import json_ids
from memline.shared.index.identities import IdentityRow
from memline.shared.search import fusion
from memline.shared.search.matches import CHUNKS, Matches, Row
from memline.shared.search.passages import WINDOW, Passage, passages, snippet
from memline.shared.search.question import Question, analyse
from memline.shared.search.request import SearchRequest, day_bounds, files_of_days, files_of_tag, files_within
from memline.shared.search.results import Answer, Hit
from memline.shared.search.scorer import lifts_of, score
from memline.shared.search.search_index import Comparison, SearchIndex
from memline.shared.search.terms import Words
from memline.shared.sources.dates import day_of_time
from memline.shared.words import counted

#: Candidates by words, and by vectors, for each step of `candidateMultiplier`; fixed, so that fewer hits are
#: a prefix of more.
POOL_STEP = 25

#: Characters of a question whose answer is kept.
MOST_KEPT_CHARS = 1_000

#: Why a search in a group may find nothing.
PRIVATE = "; what is private, MEMORY.md and past conversations, was not searched"

# CROSS JOIN: the few that are given first.
_COPIES = (
    "SELECT mine.id, path FROM chunks AS mine CROSS JOIN chunks AS other"
    " ON other.text_hash = mine.text_hash AND other.file_id <> mine.file_id"
    " JOIN files ON files.id = other.file_id WHERE mine.id IN (SELECT value FROM json_each(?1))"
    " AND (?2 IS NULL OR other.file_id IN (SELECT value FROM json_each(?2)))"
)

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
    today = day_of_time(now)
    asked = request, settings, sources, chunk_tokens, embedder is None, today
    known: Answer | None = index.known(asked)
    if known is not None:
        return known
    question, findings = analyse(request.query, today), list[Finding]()
    if not question.text:
        return Answer(notice="the question is empty")
    vector = compared = None
    with _keywords_instead(findings):
        vector = embedder and _embedded(index, embedder, question.text)
    with index.snapshot() as connection:
        active = index.matches.active
        with _keywords_instead(findings):
            compared = None if vector is None else index.comparison(active, *vector)
        # What was indexed while a source was switched on is not shown once it is off.
        is_limited = request.is_limited or (sources and not index.matches.sources.issubset(sources))
        files = files_within(connection, request, bounds, sources) if is_limited else None
        index.matches.files = None if files is None else json_ids(files)
        search = _Search(index.matches, question, settings, explain=request.explain)
        hits = search.hits(search.ranked(compared, now), chunk_tokens * 3 // 2)
        notice = search.notice(hits)
        if not hits and request.source and sources and request.source not in sources:
            notice = f"the source {request.source} is switched off: add it to memorySearch.sources"
        elif not hits and request.private:
            # In a group the words must not tell what the private note has.
            unknown = [tag for tag in request.tags if not files_of_tag(connection, tag)]
            notice = f"no note has the tag {' or '.join(unknown)}" if unknown else notice
        answer = Answer(
            hits=hits,
            mode=search.mode,
            notice=notice + PRIVATE * (not hits and not request.private),
            missing=search.words.missing,
            findings=tuple(findings),
            provider=active.identity.provider if active else "none",
            model=active.identity.model if active else "",
        )
        if not findings and len(request.query) <= MOST_KEPT_CHARS:
            index.matches.answers[asked] = answer
        return answer


@contextmanager
def _keywords_instead(findings: list[Finding]) -> Iterator[None]:
    """Go on without the vector of a question where there is none, and say why."""
    try:
        yield
    except ProviderError as error:
        what = f"only keywords were searched: {error.message}"
        findings.append(warning("question_not_embedded", what, error.hint or "memline doctor --deep"))


def _embedded(index: SearchIndex, embedder: Embedder, text: str) -> tuple[int, bytes] | None:
    """Return the active identity of an index and the vector of a question under it; None without one."""
    with index.connected() as connection:
        active = index.matches.active
        if active is None or not active.vector_dims:
            return None
        embed = embedder(connection, active)
    return active.id, embed(text)


class _Search(Struct):
    """The state of one search; its steps fill it in."""

    matches: Matches
    question: Question
    settings: Query
    explain: bool
    #: hybrid, keyword or vector.
    mode: str = "keyword"
    #: What the words say; empty where vectors alone are asked.
    words: Words = field(default_factory=Words)
    #: Chunk -> what is added to it, its cosine, its late interaction, and what orders it.
    lifts: dict[int, float] = {}
    cosines: dict[int, float] = {}
    late: dict[int, float] = {}
    fused: dict[int, float] = {}

    def ranked(self, compared: Comparison | None, now: float) -> Iterator[Row]:
        """Score and order the candidates, the best first, each text once; ties by path and line."""
        hybrid, matches = self.settings.hybrid, self.matches
        pool = max(POOL_STEP * hybrid.candidate_multiplier, self.settings.max_results)
        if hybrid.enabled or compared is None:
            self.words = score(matches, self.question, pool)
        self.lifts = lifts_of(matches, self.question, self.words, pool)
        if compared is not None:
            self.mode = "hybrid" if hybrid.enabled else "vector"
            self._compare(compared, pool)
        self.fused = fusion.fuse(self.mode, self.words, self.cosines, self.late, self.lifts, hybrid)
        sure, least = self.words.sums.keys() | self.lifts.keys(), self.settings.min_score
        best = [each for each in self.fused if each in sure or self.cosines[each] >= least]
        if hybrid.temporal_decay.enabled:
            days = hybrid.temporal_decay.half_life_days
            for row in matches.read(best).values():
                self.fused[row.id] *= fusion.decay(row, now, days)
        return self._each_text_once(sorted(best, key=self.fused.__getitem__, reverse=True))

    def _each_text_once(self, best: Sequence[int]) -> Iterator[Row]:
        """Read chunks, the best first, as they are asked for: most questions look at a third of them."""
        texts = set[bytes]()
        while best:
            last = self.fused[best[:WINDOW][-1]]
            end = sum(1 for each in best if self.fused[each] >= last)
            rows = self.matches.read(best[:end]).values()
            for row in sorted(rows, key=lambda row: (-self.fused[row.id], row.path, row.start)):
                if row.text_hash not in texts:
                    texts.add(row.text_hash)
                    yield row
            best = best[end:]

    def _compare(self, compared: Comparison, pool: int) -> None:
        """Set the cosines of the nearest chunks and of what the words found, and their late interaction."""
        cosines = dict(compared.top(pool, self.matches.files))
        vectors = compared.pairs({*self.words.sums, *self.lifts}, cosines, self.matches.files)
        cosines |= compared.cosines({*vectors.values()}.difference(cosines))
        near = ((each, cosines.get(vector_id)) for each, vector_id in vectors.items())
        self.cosines = {each: round(cosine, fusion.DECIMALS) for each, cosine in near if cosine is not None}
        if not isinstance(compared.query, LateVector):
            return
        tokens = token_rows.read(self.matches.connection, vectors.values())
        if packed := [(each, tokens[vector]) for each, vector in vectors.items() if vector in tokens]:
            from memline.shared.embedders import late  # imports numpy: 110 ms

            fitted = token_rows.projection(self.matches.connection, compared.identity_id)
            words = (each for each in reversed(self.words.lookups) if each.term.kind in ("word", "id"))
            rarity = dict.fromkeys(self.question.light, 0.0) | {each.term.label: each.idf for each in words}
            scores = late.scores(self.question.text, compared.query.tokens, rarity, packed, fitted)
            self.late = {chunk_id: round(each, fusion.DECIMALS) for chunk_id, each in scores.items()}

    def hits(self, rows: Iterator[Row], max_tokens: int) -> tuple[Hit, ...]:
        """Make hits of the best candidates, with the part of their text that answers."""
        asked = {term.typed for term in self.question.terms if term.typed}
        is_far = max(self.cosines.values(), default=-1.0) < self.settings.min_score
        if asked and asked.issubset(self.words.missing) and is_far and not self.lifts:
            # Nothing but beginnings and corrected words: a near miss.
            rows = islice(rows, 1)
        if (mmr := self.settings.hybrid.mmr).enabled:
            pool = [*islice(rows, fusion.MMR_POOL)]
            rows = chain(fusion.diversify(pool, self.fused, mmr.lambda_), rows)
        chosen = passages(rows, wanted=self.settings.max_results, max_tokens=max_tokens)
        copies: dict[int, set[str]] = {}
        values = (json_ids(each.best.id for each in chosen), self.matches.files)
        for chunk_id, path in self.matches.connection.execute(_COPIES, values):
            copies.setdefault(chunk_id, set()).add(path)
        return tuple(self._hit(each, sorted(copies.get(each.best.id, ()))) for each in chosen)

    def _hit(self, passage: Passage, copies: Sequence[str]) -> Hit:
        best, words = passage.best, self.words
        text, first, last = snippet(passage.lines, words.needles)
        explanation = self.explain and {
            "terms": [*reversed(words.terms_of(best.id))],
            "sum": round(words.sums.get(best.id, 0.0), fusion.DECIMALS),
            "cosine": self.cosines.get(best.id),
            "late": self.late.get(best.id),
            "rank": 1 + sum(other > self.fused[best.id] for other in self.fused.values()),
        }
        # A share of the question that was found lowers all scores.
        most = 0.0 if self.cosines else max(words.sums.values(), default=0.0)
        root = math.sqrt(2 * self.fused[best.id] * (most / (most + words.mass) if most else 1.0))
        return Hit(
            path=best.path,
            start_line=passage.start,
            end_line=passage.end,
            shown=(passage.start + first, passage.start + last) if passage.is_of_file else (0, 0),
            score=round(root / (root + 1), fusion.DECIMALS),
            vector_score=self.cosines.get(best.id, 0.0),
            text_score=round(words.coverage(best.id), fusion.DECIMALS),
            snippet=text,
            source=best.source,
            heading=" > ".join(dict.fromkeys(filter(None, (best.title, *best.heading.split(" > "))))),
            also_in=tuple(copies),
            needles=words.needles,
            explanation=explanation or None,
        )

    def notice(self, hits: Sequence[Hit]) -> str:
        """Say why the list is as it is: days and words that no note has, or why it is empty."""
        reader, files = self.matches.connection, self.matches.files
        absent = [str(day) for day in self.question.days if not files_of_days(reader, (day,), files)]
        missing = [word for word in self.words.missing if word not in absent]
        within = "within the filters " if files else ""
        what = [f"no note {within}is of {' or '.join(absent)}"] if absent else []
        if missing and (hits or absent):
            what.append(f"nothing that was searched contains: {', '.join(missing)}")
        if what or hits:
            return "; ".join(what)
        if not self.matches.totals[CHUNKS]:
            return "the index has no notes"
        if self.matches.files == "[]":
            return "no file is within the filters"
        if self.fused:
            weak = f"only {counted(len(self.fused), 'hit')} by meaning"
            return f"no term was found, and {weak}, weaker than minScore {self.settings.min_score:g}"
        return "nothing in the notes matches"
