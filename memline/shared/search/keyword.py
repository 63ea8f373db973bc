"""Find chunks by the words of a question, and rank them by one sum.

The retriever is an OR of the terms: one absent word must not hide every note. Each term is looked up alone,
the rarest first, so that it is known which chunk holds what. Over the terms t of the question

    sum  =  lift( S weight(t) idf(t) fit(t, chunk) )  +  0.7 S weight(t) idf'(t) fit(t, name)  +  0.1 top full

    fit     bm25 without its idf: text 1, heading and path 0.7 each; k1 1.2, b 0.75
    idf     ln(1 + (N - df + 1/2) / (df + 1/2)), above zero (FTS5's is cut to 0.000001 for a word in half of
            the chunks, which made small memories rank by chance); idf' and fit are those of the name
            documents, the best of a file counts
    weight  1 for the word as typed and its plain inflections, an id as it is spelled, a quoted phrase; 1/3
            for what shares a stem alone, an irregular form, a synonym, a piece or beginning that stands in
            for what is nowhere
    lift    to the best chunk that holds a part of the same terms and no other: more words are never behind
    full    1 where every term is held with weight 1; top is the best sum of the question

Then what holds an id that one file alone has comes before what lacks it, and what holds such a word before
what lacks it and has two others at most.
docs/search.md has what each part is worth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from memline.shared.search.lifts import alone_first, lift
from memline.shared.search.postings import CHUNKS, MAX_ROWS, NAMES, Fits, Postings, Table
from memline.shared.search.query import Question, Term, any_of, as_typed, inflections, quoted, related
from memline.shared.search.vector_backends import json_ids
from memline.shared.sources.folding import fold
from memline.shared.values import field, replace, value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Terms of a question that are searched, the rarest.
MAX_TERMS = 24

#: What counts less than the word itself; 1/4 and 1/2 found less.
FORM_WEIGHT = 1 / 3

#: What the name of a file weighs beside a chunk of it.
NAME_WEIGHT = 0.7

#: What holds everything is lifted by this share of the best sum.
FULL_LIFT = 0.1

#: Chunks that may hold a word which one file alone has.
ALONE_CHUNKS = 50

#: Rows that the rarest terms find before commoner ones only score what is found: a chunk with nothing but the
#: commonest words of a question is not among its best, and bm25() takes 1.6 µs a chunk. Abstracts lost 0.001
#: of recall with 300 and nothing with 500.
FOUND_ENOUGH = 500

#: Best rows that a common term scores then.
SCORED = 400

#: Files that a question names best whose chunks are candidates; 50 found as much.
NAMED = 20

#: Best hits for which chunks with more of the words are looked for where not all were scored, if they hold so
#: few, and how many chunks: a list of as many is right. What holds more words is among the scored.
CHECKED, FEW_WORDS, MORE_WORDS = 10, 3, 50

#: Chunks with the tokens of an id that are read to see whether it is spelled so.
SPELLED = 64

_ANY = (
    "SELECT 1 FROM {0} JOIN chunks ON chunks.id = {0}.rowid WHERE {0} MATCH ?"
    " AND chunks.file_id IN (SELECT value FROM json_each(?)) LIMIT 1"
)
_SPELLINGS = (
    "SELECT chunks.id, text, heading, path FROM chunks JOIN files ON files.id = chunks.file_id"
    " WHERE chunks.id IN (SELECT value FROM json_each(?))"
)
_MATCHING = (
    "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? AND rowid IN (SELECT value FROM json_each(?))"
)
_FILES_OF_NAMES = "SELECT id, file_id FROM names WHERE id IN (SELECT value FROM json_each(?))"


@value
class KeywordHit:
    """A chunk with a term of the question, in it or in the name of its file."""

    chunk_id: int
    #: Share of the idf mass of the question that the chunk holds, by weight.
    coverage: float
    #: Whether it holds every term itself.
    is_full: bool
    #: The sum.
    strength: float
    #: Whether it holds an id that one file alone has.
    has_id: bool = False


@value
class KeywordHits:
    """The hits of the keyword retriever, best first, and what it searched."""

    hits: Sequence[KeywordHit] = ()
    #: The best sum as a share of what it and all idf of the question are together, 0 … 1.
    quality: float = 0.0
    #: MATCH expression of all terms and forms; empty when none was found.
    match: str = ""
    #: The terms in it, without repetition.
    terms: tuple[Term, ...] = ()
    #: The words, as typed, of which no form stands in what was searched.
    missing: tuple[str, ...] = ()
    #: idf of the plain words of the question, by label.
    rarity: Mapping[str, float] = field(default_factory=dict)


@value
class _Way:
    """One phrase that is looked up for a term."""

    match: str
    weight: float
    #: Chunks that hold it.
    df: int
    #: The word and its inflections, where some of these chunks hold another word of the same stem.
    typed: str = ""


@value
class _Lookup:
    """A term with its ways to be found."""

    term: Term
    ways: list[_Way]
    #: Share of the idf mass of the question.
    mass: float

    @property
    def df(self) -> int:
        return self.ways[0].df


#: What each term of a question says of rows: by row the weight with which the term is held.
_Held = list[dict[int, float]]


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
    return _KeywordSearch(connection, files, postings, limit).run(question.terms)


class _KeywordSearch:
    """The state of one keyword search."""

    def __init__(self, connection: Connection, files: str | None, postings: Postings, limit: int) -> None:
        self._connection = connection
        self._files = files
        self._postings = postings
        self._limit = limit
        #: The chunks that every term has scored; None for all that hold one.
        self._scored: Collection[int] | None = None

    def run(self, terms: Sequence[Term]) -> KeywordHits:
        total = self._postings.rows(self._connection, CHUNKS)
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
            idf = _idf(total, ways[0].df if is_there else 0)
            if term.typed:
                idfs.append(idf)
            if term.is_word:
                rarity[term.label] = idf
        mass = math.fsum(idfs) or 1.0
        lookups = [_Lookup(term=term, ways=ways, mass=_idf(total, ways[0].df) / mass) for term, ways in found]
        # The rarest first; sorting keeps the order of the question among equals.
        chosen = sorted(lookups, key=lambda lookup: lookup.df)[:MAX_TERMS]
        own, held = self._sums(CHUNKS, chosen)
        hits = self._join(chosen, own, held, is_all=len(chosen) == len(lookups) and not missing)
        top = max((hit.strength for hit in hits), default=0.0)
        kept = {id(lookup.term) for lookup in chosen}
        return KeywordHits(
            hits=hits[: self._limit],
            quality=top / (top + mass),
            match=any_of(dict.fromkeys(way.match for lookup in chosen for way in lookup.ways)),
            terms=tuple(term for term in terms if id(term) in kept),
            missing=as_typed(missing, terms),
            rarity=rarity,
        )

    def _ways(self, term: Term, words: set[str], *, with_forms: bool) -> tuple[list[_Way], bool]:
        """Return what finds a term, itself first, and whether a form of it is there at all."""
        ways = [way for match in (term.match, *term.spellings) if (way := self._way(match, 1.0))]
        is_there = bool(ways)
        if with_forms:
            inflected = inflections(term.label)
            if ways and ways[0].match == term.match and term.label.isalpha():
                typed = any_of(map(quoted, inflected))
                count = self._count(CHUNKS.typed, typed)
                if count < ways[0].df:
                    is_there = count > 0 or len(ways) > 1
                    weight, typed = (1.0, typed) if count else (FORM_WEIGHT, "")
                    ways[0] = replace(ways[0], weight=weight, typed=typed)
            for other, is_form in related(term.label).items():
                # To the stemmer `try` and `tried` are two words.
                weight = 1.0 if other in inflected else FORM_WEIGHT
                if other not in words and (way := self._way(quoted(other), weight)):
                    ways.append(way)
                    is_there = is_there or is_form
        in_names = (
            0 if ways or not term.is_asked else self._postings.count(self._connection, NAMES.name, term.match)
        )
        if in_names:
            # CJK text of a path is among the pairs of its name alone.
            return [_Way(match=term.match, weight=1.0, df=in_names)], True
        if not ways:
            ways = [way for match in term.fallbacks if (way := self._way(match, FORM_WEIGHT))]
        return ways, is_there

    def _way(self, match: str, weight: float) -> _Way | None:
        df = self._count(CHUNKS.name, match)
        return _Way(match=match, weight=weight, df=df) if df else None

    def _count(self, table: str, match: str) -> int:
        """Count the chunks with a phrase; 0 where it is in none of those that are searched."""
        df = self._postings.count(self._connection, table, match)
        if df and self._files is not None:
            # What is rare is known from all notes; whether it is there, from those that are searched.
            df = df if self._connection.execute(_ANY.format(table), (match, self._files)).fetchone() else 0
        return df

    def _sums(
        self, table: Table, lookups: Sequence[_Lookup], among: list[int] | None = None
    ) -> tuple[dict[int, float], _Held]:
        """Sum up what the terms say of each row, the rarest first; `among`: of these alone.

        Returns the rows with their sum, and for each term the rows that hold it.
        """
        total = self._postings.rows(self._connection, table)
        sums: dict[int, float] = {}
        held: _Held = []
        rows_read = 0
        for lookup in lookups:
            if among is None and rows_read > FOUND_ENOUGH:
                # Once: what is scored only gains by it, so that the best stay the best.
                among = sorted(_strongest(SCORED, sums, sums))
                if table is CHUNKS:
                    self._scored = among
            holders: dict[int, float] = {}
            for way in reversed(lookup.ways):
                df, typed = way.df, way.typed
                if table is not CHUNKS:
                    # A day of the question is looked for in the path and the headings of a chunk.
                    is_asked = lookup.term.is_asked
                    df = self._postings.count(self._connection, table.name, way.match) if is_asked else 0
                    typed = ""
                    if not df:
                        continue
                fits: Fits
                if among is None and self._are_many(way, lookup, df):
                    fits = self._best(table, way.match, typed, sums)
                    rows_read += df
                    if table is CHUNKS:
                        self._scored = ()
                else:
                    fits = self._postings.fits(
                        self._connection, table, way.match, typed=typed, files=self._files, among=among
                    )
                worth = way.weight * _idf(total, df)
                if typed:
                    both = list(fits)
                    scores = {row: worth * (fit if fit > 0 else -fit * FORM_WEIGHT) for row, fit in both}
                    weights = {row: 1.0 if fit > 0 else holders.get(row, FORM_WEIGHT) for row, fit in both}
                else:
                    scores = {row: worth * fit for row, fit in fits}
                    weights = dict.fromkeys(scores, way.weight)
                rows_read += len(scores)
                # Forms first, the term itself last: the greater weight stays.
                holders |= weights
                if sums:
                    for row, score in scores.items():
                        sums[row] = sums.get(row, 0.0) + score
                else:
                    sums = scores
            if lookup.term.literal and table is CHUNKS:
                holders |= dict.fromkeys(holders.keys() - self._spelled(lookup.term, holders), FORM_WEIGHT)
            held.append(holders)
        return sums, held

    def _are_many(self, way: _Way, lookup: _Lookup, df: int) -> bool:
        """Tell whether the best rows of a way are enough: with it the search for rows ends.

        Of forms, which come before it, and of ids, all are needed.
        """
        return df > MAX_ROWS and self._files is None and way is lookup.ways[0] and lookup.term.literal is None

    def _best(self, table: Table, match: str, typed: str, found: Collection[int]) -> Fits:
        """Score what was found before, and the best of all others: no other row is a hit by this alone."""
        fits = dict(self._postings.best(self._connection, table, match, typed, max(SCORED, self._limit)))
        if found:
            among = sorted(found)
            fits |= self._postings.fits(self._connection, table, match, typed=typed, among=among)
        return fits.items()

    def _join(
        self, lookups: Sequence[_Lookup], own: dict[int, float], held: _Held, *, is_all: bool
    ) -> list[KeywordHit]:
        """Make hits of the best chunks, best first; `is_all`: nothing but `lookups` was asked for."""
        names = self._names(lookups)
        pool = set(_strongest(self._limit, own, own))
        # What may be lifted is not among the best by its sum alone.
        for holders, lookup in zip(held, lookups, strict=True):
            if lookup.df <= ALONE_CHUNKS or lookup.term.is_exact:
                pool.update(_strongest(self._limit, holders, own))
        if names:
            best = nlargest(NAMED, names, key=lambda file_id: (names[file_id], -file_id))
            for chunk_id, ordinal in self._postings.chunks_of(self._connection, best):
                if chunk_id in own or not ordinal:
                    pool.add(chunk_id)
                    own.setdefault(chunk_id, 0.0)
        if self._scored is not None:
            ranked = sorted(pool, key=lambda chunk_id: (-own[chunk_id], chunk_id))[:CHECKED]
            pool |= self._with_more_words(ranked, lookups, held)
            again, theirs = self._sums(CHUNKS, lookups, sorted(pool.difference(self._scored)))
            own |= again
            held = [mine | added for mine, added in zip(held, theirs, strict=True)]
        own = {chunk_id: own[chunk_id] for chunk_id in sorted(pool)}
        # Many chunks hold the same terms in the same ways.
        ways = list(zip(*(map(holders.get, own) for holders in held), strict=True)) or [()] * len(own)
        covers = {way: _cover_of(way, lookups) for way in set(ways)}
        cover = {chunk_id: covers[way] for chunk_id, way in zip(own, ways, strict=True)}
        own = lift(own, {chunk_id: parts for chunk_id, (_, parts, _) in cover.items()})
        file_of = self._postings.files_of(self._connection, own)
        sums = {each: score + NAME_WEIGHT * names.get(file_of[each], 0.0) for each, score in own.items()}
        masks = {chunk_id: mask for chunk_id, (mask, _, _) in cover.items()}
        alone = _alone(lookups, held, file_of)
        sums = alone_first(sums, masks, *alone)
        top = max(sums.values(), default=0.0)
        # A day in words is a hint: a note that says it otherwise holds everything all the same.
        full = sum(1 << number for number, lookup in enumerate(lookups) if lookup.term.is_asked)
        hits = []
        for chunk_id, strength in sums.items():
            mask, _, coverage = cover[chunk_id]
            is_full = is_all and mask & full == full
            strength += FULL_LIFT * top * is_full
            has_id = bool(mask & alone[1])
            hits.append(
                KeywordHit(
                    chunk_id=chunk_id, coverage=coverage, is_full=is_full, strength=strength, has_id=has_id
                )
            )
        return sorted(hits, key=lambda hit: (-hit.strength, hit.chunk_id))

    def _names(self, lookups: Sequence[_Lookup]) -> dict[int, float]:
        """Score the files whose names hold a term, each by the best of its name documents."""
        sums, _ = self._sums(NAMES, lookups)
        best = _strongest(SCORED, sums, sums)
        names: dict[int, float] = {}
        for row, file_id in self._connection.execute(_FILES_OF_NAMES, (json_ids(best),)):
            names[file_id] = max(sums[row], names.get(file_id, 0.0))
        return names

    def _with_more_words(self, chunk_ids: Sequence[int], lookups: Sequence[_Lookup], held: _Held) -> set[int]:
        """Find chunks with the terms that one of these chunks holds, and another one."""
        found: set[int] = set()
        matches = [lookup.ways[0].match for lookup in lookups]
        for mask in {tuple(chunk_id in holders for holders in held) for chunk_id in chunk_ids}:
            inside = [f"({match})" for match, is_held in zip(matches, mask, strict=True) if is_held]
            others = [match for match, is_held in zip(matches, mask, strict=True) if not is_held]
            if others and 0 < len(inside) <= FEW_WORDS:
                match = " AND ".join([*inside, f"({any_of(others)})"])
                found.update(self._postings.few(self._connection, CHUNKS, match, self._files, MORE_WORDS))
        return found

    def _spelled(self, term: Term, holders: dict[int, float]) -> set[int]:
        """Return which of the chunks with the tokens of an id hold it as it is spelled."""
        assert term.literal is not None
        ids = json_ids(islice((chunk for chunk, weight in holders.items() if weight == 1.0), SPELLED))
        rows = self._connection.execute(_SPELLINGS, (ids,))
        return {row[0] for row in rows if any(map(term.literal.search, map(fold, row[1:])))}


def _strongest(count: int, rows: Collection[int], sums: Mapping[int, float]) -> list[int]:
    """Return the best rows, the first ones among equals."""
    if len(rows) > 20 * count:
        return nlargest(count, rows, key=sums.__getitem__)
    # The same in C: a third of the time for a few times as many as are wanted.
    return sorted(rows, key=sums.__getitem__, reverse=True)[:count]


def _cover_of(way: Sequence[float | None], lookups: Sequence[_Lookup]) -> tuple[int, int, float]:
    """Return the set of terms that are held with weight 1, the same with those held by less, and the share.

    `way`: for each of `lookups` the weight with which it is held; None where it is not.
    """
    coverage = 0.0
    mask = parts = 0
    for number, (weight, lookup) in enumerate(zip(way, lookups, strict=True)):
        if weight is None:
            continue
        if lookup.term.is_asked:
            coverage += weight * lookup.mass
        parts |= 1 << MAX_TERMS + number
        if weight == 1.0:
            mask |= 1 << number
    return mask, parts | mask, min(1.0, coverage)


def _alone(lookups: Sequence[_Lookup], held: _Held, file_of: Mapping[int, int]) -> tuple[int, int]:
    """Return the set of terms that one file alone has, and those of them that are ids."""
    alone = ids = 0
    for number, (holders, lookup) in enumerate(zip(held, lookups, strict=True)):
        if not (lookup.term.is_exact or lookup.term.is_word) or lookup.df > ALONE_CHUNKS:
            continue
        if len({file_of.get(chunk_id, 0) for chunk_id, weight in holders.items() if weight == 1.0}) == 1:
            alone |= 1 << number
            ids |= lookup.term.is_exact << number
    return alone, ids


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


def _idf(total: int, df: int) -> float:
    return math.log(1 + (total - df + 0.5) / (df + 0.5))
