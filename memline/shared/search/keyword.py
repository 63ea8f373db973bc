"""Find chunks by the words of a question, and rank them by our own measure.

The retriever is an OR of the terms: one absent word must not hide every note. Each term is looked up alone,
the rarest first, so that it is known which chunk holds what. What a term is worth is its rarity

    idf = ln(1 + (N - df + 1/2) / (df + 1/2))        N chunks, df of them with the term

(Robertson and Sparck Jones, kept above zero; FTS5's own is cut to 0.000001 for a word in half of the chunks,
which made small memories rank by chance), times how often and in how long a chunk it stands, as FTS5's bm25
sees it (k1 1.2, b 0.75). Before that comes what is covered:

    1. of the ids and quoted phrases of the question, how much
    2. everything, or not
    3. what has the rarest term before what lacks it and has one other, or nothing that the first has not,
       however often that stands there

Measured on questions over conversations, notes and abstracts: the rarest term before all others lost
0.02-0.12 of recall at six, coverage of idf mass as a half of the score 0.04 on abstracts; these three lose
nothing. Other forms of a word count a third, a term that is nowhere gives way to its fallbacks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import groupby, islice
from typing import TYPE_CHECKING, NamedTuple

from memline.shared.search.postings import MAX_CHUNKS, Postings, Scores
from memline.shared.search.query import Question, Term, any_of, quoted, related
from memline.shared.search.vector_backends import json_ids
from memline.shared.sources.folding import fold
from memline.shared.values import field, value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Terms of a question that are searched. 12 measured as good as all; 8 lost a hundredth.
MAX_TERMS = 12

#: What another form, a synonym or a fallback counts next to the term itself; 1/4 and 1/2 found less.
FORM_WEIGHT = 1 / 3

#: Chunks that the rarest terms find before commoner ones only score what is found: a chunk with nothing but
#: the commonest words of a question is not among its best, and bm25() takes 1.6 µs a chunk. Abstracts lost
#: 0.001 of recall with 300 and nothing with 500.
FOUND_ENOUGH = 500

#: Best chunks that a common term scores then.
SCORED = 400

#: Chunks with the tokens of an id that are read to see whether it is spelled so.
SPELLED = 64

#: The most that FTS5's bm25 gives for one term, over its idf: k1 + 1.
_MOST = 2.2

#: FTS5 takes this for the idf of a term in half of the chunks or more.
_LEAST_IDF = 1e-6

_ANY = (
    "SELECT 1 FROM chunks_fts JOIN chunks ON chunks.id = chunks_fts.rowid WHERE chunks_fts MATCH ?"
    " AND chunks.file_id IN (SELECT value FROM json_each(?)) LIMIT 1"
)
# The first number of FTS5's averages record is that of its rows; counting them takes 10 ms a million.
_AVERAGES = "SELECT block FROM chunks_fts_data WHERE id = 1"
_SPELLINGS = (
    "SELECT chunks.id, text, heading, path FROM chunks JOIN files ON files.id = chunks.file_id"
    " WHERE chunks.id IN (SELECT value FROM json_each(?))"
)
_MATCHING = (
    "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? AND rowid IN (SELECT value FROM json_each(?))"
)


class KeywordHit(NamedTuple):
    """A chunk with a term of the question."""

    chunk_id: int
    #: Share of the idf mass of all ids and quoted phrases that it holds.
    exact: float
    #: Share of the idf mass of the whole question that it holds; other forms count a third.
    coverage: float
    #: Whether it holds every term itself.
    is_full: bool
    #: bm25 with our idf, a third rule's lift included; orders the hits of one question.
    strength: float


@value
class KeywordHits:
    """The hits of the keyword retriever, best first, and what it searched."""

    hits: Sequence[KeywordHit] = ()
    #: MATCH expression of all terms and forms; empty when none was found.
    match: str = ""
    #: The terms in it, without repetition.
    terms: tuple[Term, ...] = ()
    #: The words, as typed, of which no form stands in what was searched.
    missing: tuple[str, ...] = ()
    #: idf of the plain words of the question, by label.
    rarity: Mapping[str, float] = field(default_factory=dict)


class _Way(NamedTuple):
    """One phrase that is looked up for a term."""

    match: str
    weight: float
    #: Chunks that hold it.
    df: int


class _Lookup(NamedTuple):
    """A term with its ways to be found."""

    term: Term
    ways: list[_Way]
    #: Share of the idf mass of the question.
    mass: float

    @property
    def df(self) -> int:
        return self.ways[0].df


def by_keyword(
    connection: Connection,
    question: Question,
    files: str | None,
    limit: int,
    postings: Postings | None = None,
) -> KeywordHits:
    """Find the best chunks for the terms of `question`; `files` is a JSON array of file ids, None for all.

    `postings` keeps what is read for the next question, inside a read transaction.
    """
    postings = postings or Postings()
    postings.follow(connection)
    return _KeywordSearch(connection, files, postings).run(question.terms, limit)


class _KeywordSearch:
    """The state of one keyword search."""

    def __init__(self, connection: Connection, files: str | None, postings: Postings) -> None:
        self._connection = connection
        self._files = files
        self._postings = postings
        self._total = _rows(connection)

    def run(self, terms: Sequence[Term], limit: int) -> KeywordHits:
        missing: list[Term] = []
        found: list[tuple[Term, list[_Way]]] = []
        idfs: list[float] = []
        rarity: dict[str, float] = {}
        words = {term.label for term in terms if term.is_word}
        with_forms = set(islice((term.label for term in terms if term.is_word), MAX_TERMS))
        for term in terms:
            ways, is_there = self._ways(term, words, with_forms=term.label in with_forms)
            if not is_there:
                missing.append(term)
            if ways:
                found.append((term, ways))
            idf = _idf(self._total, ways[0].df if ways else 0)
            if term.typed:
                idfs.append(idf)
            if term.is_word:
                rarity[term.label] = idf
        mass = math.fsum(idfs) or 1.0
        lookups = [_Lookup(term, ways, _idf(self._total, ways[0].df) / mass) for term, ways in found]
        # The rarest first; sorting keeps the order of the question among equals.
        chosen = sorted(lookups, key=lambda lookup: lookup.df)[:MAX_TERMS]
        strength, held = self._score(chosen, limit)
        hits = self._cover(chosen, strength, held, is_all=len(chosen) == len(lookups) and not missing)
        kept = {id(lookup.term) for lookup in chosen}
        return KeywordHits(
            hits=sorted(hits, key=_order)[:limit],
            match=any_of(dict.fromkeys(way.match for lookup in chosen for way in lookup.ways)),
            terms=tuple(term for term in terms if id(term) in kept),
            missing=_names(missing, terms),
            rarity=rarity,
        )

    def _ways(self, term: Term, words: set[str], *, with_forms: bool) -> tuple[list[_Way], bool]:
        """Return what finds a term, itself first, and whether a form of it is there at all."""
        ways = [way for match in (term.match, *term.spellings) if (way := self._way(match, 1.0))]
        is_there = bool(ways)
        if with_forms:
            for other, is_form in related(term.label).items():
                if other not in words and (way := self._way(quoted(other), FORM_WEIGHT)):
                    ways.append(way)
                    is_there = is_there or is_form
        if not ways:
            ways = [way for match in term.fallbacks if (way := self._way(match, FORM_WEIGHT))]
        return ways, is_there

    def _way(self, match: str, weight: float) -> _Way | None:
        df = self._postings.count(self._connection, match)
        if df and self._files is not None:
            # What is rare is known from all notes; whether it is there, from those that are searched.
            df = df if self._connection.execute(_ANY, (match, self._files)).fetchone() else 0
        return _Way(match, weight, df) if df else None

    def _score(
        self, lookups: Sequence[_Lookup], limit: int
    ) -> tuple[dict[int, float], list[dict[int, float]]]:
        """Sum up what the terms say of each chunk, the rarest first.

        Returns the best chunks with their sum, and for each term the chunks that hold it, with the weight of
        the way it is found. Only sums are kept for all chunks: there are thousands.
        """
        strength: dict[int, float] = {}
        held: list[dict[int, float]] = []
        rows_read = 0
        among: list[int] | None = None
        for lookup in lookups:
            if among is None and rows_read > FOUND_ENOUGH:
                # Once: what is scored only gains by it, so that the best stay the best.
                among = sorted(_strongest(SCORED, strength, strength))
            holders: dict[int, float] = {}
            for way in reversed(lookup.ways):
                if among is None and self._are_many(way, lookup):
                    scores = self._best(way, max(SCORED, limit), strength)
                    rows_read += way.df
                else:
                    scores = self._postings.scores(
                        self._connection, way.match, files=self._files, among=among
                    )
                worth = way.weight * _idf(self._total, way.df) / self._fts_idf(way.df)
                own = {chunk_id: -worth * bm25 for chunk_id, bm25 in scores}
                rows_read += len(own)
                # Forms first, the term itself last: the greater weight stays.
                holders |= dict.fromkeys(own, way.weight)
                if strength:
                    for chunk_id, score in own.items():
                        strength[chunk_id] = strength.get(chunk_id, 0.0) + score
                else:
                    strength = own
            if lookup.term.literal:
                holders |= dict.fromkeys(holders.keys() - self._spelled(lookup.term, holders), FORM_WEIGHT)
            held.append(holders)
        if len(strength) > limit:
            # What may be lifted is not among the best by its sum alone.
            certain = [holders for holders, lookup in zip(held, lookups, strict=True) if lookup.term.is_exact]
            kept = set(_strongest(limit, strength, strength))
            for holders in (*held[:1], *certain):
                kept.update(_strongest(limit, holders, strength))
            strength = {chunk_id: strength[chunk_id] for chunk_id in kept}
        return strength, held

    def _are_many(self, way: _Way, lookup: _Lookup) -> bool:
        """Tell whether the best chunks of a way are enough: with it the search for chunks ends.

        Of forms, which come before it, and of ids, all are needed.
        """
        is_last = way is lookup.ways[0] and lookup.term.literal is None
        return is_last and self._files is None and way.df > MAX_CHUNKS

    def _best(self, way: _Way, count: int, found: Collection[int]) -> Scores:
        """Score what was found before, and the best of all others: no other chunk is a hit by this alone."""
        scores = dict(self._postings.best(self._connection, way.match, count))
        if found:
            among = sorted(found)
            scores |= self._postings.scores(self._connection, way.match, files=None, among=among)
        return scores.items()

    def _cover(
        self,
        lookups: Sequence[_Lookup],
        strength: dict[int, float],
        held: list[dict[int, float]],
        *,
        is_all: bool,
    ) -> list[KeywordHit]:
        """Make hits of the best chunks: what they cover; `is_all`: nothing but `lookups` was asked for."""
        exact_mass = math.fsum(lookup.mass for lookup in lookups if lookup.term.is_exact) or 1.0
        # Many chunks hold the same terms in the same ways.
        ways = list(zip(*(map(holders.get, strength) for holders in held), strict=True))
        covers = {way: self._cover_of(way, lookups, exact_mass) for way in set(ways)}
        # A day in words is a hint: a note that says it otherwise holds everything all the same.
        full = sum(1 << number for number, lookup in enumerate(lookups) if lookup.term.is_asked)
        masks = {chunk_id: covers[way][0] for chunk_id, way in zip(strength, ways, strict=True)}
        least = _least(strength, masks)
        hits = []
        for (chunk_id, own), way in zip(strength.items(), ways, strict=True):
            mask, exact, coverage = covers[way]
            lifted = least.get(mask)
            if lifted is not None:
                # A little more than the other, and in the order of their own strength.
                own = max(own, lifted + 1e-4 * own)
            hits.append(KeywordHit(chunk_id, exact, coverage, is_all and mask & full == full, own))
        return hits

    def _cover_of(
        self, way: Sequence[float | None], lookups: Sequence[_Lookup], exact_mass: float
    ) -> tuple[int, float, float]:
        """Return the set of terms that are held themselves, and the shares of ids and of all that are held.

        `way`: for each of `lookups` the weight with which it is held; None where it is not.
        """
        coverage = exact = 0.0
        mask = 0
        for number, (weight, (term, _, mass)) in enumerate(zip(way, lookups, strict=True)):
            if weight is None:
                continue
            if term.is_asked:
                coverage += weight * mass
            if weight == 1.0:
                mask |= 1 << number
                if term.is_exact:
                    exact += mass / exact_mass
        return mask, round(exact, 6), min(1.0, coverage)

    def _fts_idf(self, df: int) -> float:
        """Compute what FTS5 has multiplied its bm25 with: its idf, times k1 + 1."""
        return _MOST * max(_LEAST_IDF, math.log((self._total - df + 0.5) / (df + 0.5)))

    def _spelled(self, term: Term, holders: dict[int, float]) -> set[int]:
        """Return which of the chunks with the tokens of an id hold it as it is spelled."""
        assert term.literal is not None
        ids = json_ids(islice((chunk for chunk, weight in holders.items() if weight == 1.0), SPELLED))
        rows = self._connection.execute(_SPELLINGS, (ids,))
        return {row[0] for row in rows if any(map(term.literal.search, map(fold, row[1:])))}


def _strongest(count: int, chunk_ids: Collection[int], strength: dict[int, float]) -> list[int]:
    """Return the best chunks, the first ones among equals."""
    if len(chunk_ids) > 20 * count:
        return nlargest(count, chunk_ids, key=strength.__getitem__)
    # The same in C: a third of the time for a few times as many as are wanted.
    return sorted(chunk_ids, key=strength.__getitem__, reverse=True)[:count]


def _least(strength: dict[int, float], masks: dict[int, int]) -> dict[int, float]:
    """Return, for each set of terms with the rarest (bit 0), the best strength of what it is lifted over.

    That lacks the rarest and holds a part of the set, or a single other term.
    """
    best: dict[int, float] = {}
    for chunk_id, mask in masks.items():
        if not mask & 1 and strength[chunk_id] > best.get(mask, 0.0):
            best[mask] = strength[chunk_id]
    single = max((top for mask, top in best.items() if not mask & (mask - 1)), default=0.0)
    return {
        mask: max([single, *(top for part, top in best.items() if part & mask == part)])
        for mask in set(masks.values())
        if mask & 1
    }


def matched_terms(
    connection: Connection, hits: KeywordHits, chunk_ids: Sequence[int]
) -> dict[int, list[str]]:
    """Return chunk id -> the terms of the question in the chunk, its heading or its path."""
    matched: dict[int, list[str]] = {chunk_id: [] for chunk_id in chunk_ids}
    for term in hits.terms:
        match = any_of((term.match, *term.spellings, *term.fallbacks))
        for (chunk_id,) in connection.execute(_MATCHING, (match, json_ids(chunk_ids))):
            matched[chunk_id].append(term.label)
    return matched


def _order(hit: KeywordHit) -> tuple[float, bool, float, int]:
    return -hit.exact, not hit.is_full, -hit.strength, hit.chunk_id


def _idf(total: int, df: int) -> float:
    return math.log(1 + (total - df + 0.5) / (df + 0.5))


def _rows(connection: Connection) -> int:
    """Return the number of chunks in the full-text index, as FTS5 counts them."""
    row = connection.execute(_AVERAGES).fetchone()
    number = 0
    # A varint of SQLite: seven bits a byte, the highest bit says that more follow.
    for byte in row[0] if row else b"":
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return number


def _names(missing: Iterable[Term], terms: Sequence[Term]) -> tuple[str, ...]:
    """Write what is missing as it was typed; of a run of CJK characters the part that is nowhere."""
    absent = {id(term) for term in missing}
    names: dict[str, None] = {}
    for is_absent, group in groupby(terms, key=lambda term: (id(term) in absent, term.typed)):
        run = list(group)
        if not is_absent[0] or not is_absent[1]:
            continue
        if not run[0].match.startswith("{grams}"):
            names[run[0].typed] = None
        elif len(run) > 1 or len(run[0].typed) <= 2:
            # One pair alone may only be where two words meet.
            names[run[0].label + "".join(term.label[-1] for term in run[1:])] = None
    return tuple(names)
