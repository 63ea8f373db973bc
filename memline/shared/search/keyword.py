"""Find chunks by the words of a question, and rank them by one sum.

The retriever is an OR of the terms: one absent word must not hide every note. Each term is looked up alone,
the rarest first, so that it is known which chunk holds what. Over the terms t of the question

    sum  =  (S weight(t) idf(t) fit(t, chunk)  +  0.7 S weight(t) idf'(t) fit(t, name))
            x  (1 + 0.3 near + 0.1 early)

    fit     bm25 without its idf: text 1, heading and path 0.7 each; k1 1.2, b 0.75; 0.1 more for a name
    idf     ln(1 + (N - df + 1/2) / (df + 1/2)), above zero (FTS5's is cut to 0.000001 for a word in half of
            the chunks, which made small memories rank by chance); idf' and fit are those of the name
            documents, the best of a file counts
    weight  1 for the word as typed and its plain inflections, an id as it is spelled, a quoted phrase; 0.85
            for a word as two, or as British or American English spells it, where it stands as typed, too; 1/3
            for what shares a stem alone, an irregular form, a synonym, and a piece, a beginning or a word one
            letter away that stands in for what is nowhere
    near    the share of the idf of the question that stands within 200 characters, for the best chunks
    early   1 / (1 + characters before the first term / 200), for the same

Then six rules (`ranking.py`) put some chunks before others. docs/search.md has them, and what each part is
worth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from itertools import compress

from memline.shared.index.driver import json_ids
from memline.shared.note_names import without_ending
from memline.shared.patterns import late
from memline.shared.search.few_rows import LEAST_ROWS, Beside, scale_of
from memline.shared.search.forms import FORM_WEIGHT, HALVES, Lookup, Way, Ways
from memline.shared.search.postings import CHUNKS, NAMES, SOME, Fits, Postings, Table, strongest
from memline.shared.search.query import Question, Term, any_of, as_typed
from memline.shared.search.ranking import ALONE_CHUNKS, Evidence, KeywordHit, KeywordHits, ranked
from memline.shared.sources.folding import without_accents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection
    from typing import Any

#: Terms of a question that are searched, the rarest.
MAX_TERMS = 24

#: What the name of a file weighs beside a chunk of it; 1/2 and 1 found less.
NAME_WEIGHT = 0.7

#: Rows that the rarest terms find before commoner ones only score what is found: a chunk with nothing but the
#: commonest words of a question is not among its best, and bm25() takes 1.6 µs a chunk. Abstracts lost 0.001
#: of recall with 300 and nothing with 500.
FOUND_ENOUGH = 500

#: Best rows of a very common term, and best names, that may be hits.
SCORED = 400

#: Rows of a term above which only the best are taken, and those that rarer ones found: no other is a hit by
#: this alone. Among 100,000 chunks a warm search took 7 ms with 3,000, 9 with 10,000 and 11 with 50,000.
MANY_ROWS = 3_000

#: Rows of a common word for each one that rarer terms found, from which on it is asked only what it says
#: beside them: what they say has to be added up again.
BESIDE = 16

#: Files that a question names best whose chunks are candidates, and how many of each.
NAMED, NAMED_CHUNKS = 20, 50

#: Best hits for which chunks with more of the words are looked for among those that are known; of these the
#: best for which FTS5 is asked, twice a list, 2 to 10 ms each at a million chunks; how many are taken for
#: each set of words, and how many words such a set has at most.
CHECKED, ASKED, MORE_WORDS, FEW_WORDS = 20, 12, 20, 4

#: Best chunks with the tokens of an id, and names with the stem of a word, that are read to see whether it
#: stands there as typed.
SPELLED = 2_000

_PHRASE, _WORD = late('"([^"]+)"'), late(r"[^\W_]+")
_SPELLINGS = (
    "SELECT id, text, heading, path FROM chunk_documents WHERE id IN (SELECT value FROM json_each(?))"
    " AND instr(lower(text || char(10) || heading || char(10) || path), ?)"
)
_NAMES = "SELECT id, text FROM names WHERE id IN (SELECT value FROM json_each(?))"
_FILES_OF_NAMES = "SELECT id, file_id FROM names WHERE id IN (SELECT value FROM json_each(?))"
_OF_NAMED = "SELECT id, ordinal FROM chunks WHERE ordinal < ? AND file_id IN (SELECT value FROM json_each(?))"


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
    return _KeywordSearch(connection, files, postings, limit).run(question)


class _KeywordSearch:
    """The state of one keyword search."""

    def __init__(self, connection: Connection, files: str | None, postings: Postings, limit: int) -> None:
        self._connection = connection
        self._files = files
        self._postings = postings
        self._limit = limit
        self._ways = Ways(connection, files, postings)
        self._found = Evidence()
        #: The chunks that every term has scored; None for all that hold one.
        self._scored: set[int] | None = None
        #: Of so many terms, the rarest, all chunks with one were found.
        self._whole = 0
        #: Chunks that a rule may put first: those with the whole question, those with a word as it was typed
        #: where many have another of its stem, and the first of files that the question names.
        self._ruled: set[int] = set()
        #: Chunks (id, ordinal) of the files that the question names best.
        self._of_named: list[tuple[int, int]] = []
        #: The chunks that may be hits.
        self._pool: set[int] = set()
        #: The ids that a chunk has as they are spelled.
        self._spelled: set[str] = set()
        #: Terms of chunks and of their names for which chunks with another one were looked for; and whether
        #: SQLite named all of them.
        self._asked: dict[tuple[frozenset[str], int], bool] = {}

    def run(self, question: Question) -> KeywordHits:
        terms = question.terms
        missing: list[Term] = []
        lookups: list[Lookup] = []
        idfs: list[float] = []
        rarity: dict[str, float] = {}
        found_idfs: list[float] = []
        words = [term.label for term in terms if term.is_word]
        with_forms = set(words[:MAX_TERMS])
        for term in terms:
            ways, is_there = self._ways.of(term, words, with_forms=term.label in with_forms)
            if not is_there and term.is_asked:
                missing.append(term)
            if ways:
                idf, typed_idf = (self._idf(CHUNKS, df) for df in (ways[0].df, ways[0].typed_df))
                lookups.append(Lookup(term=term, ways=ways, idf=idf, typed_idf=typed_idf))
            idf = self._idf(CHUNKS, ways[0].df if is_there else 0)
            if term.typed:
                idfs.append(idf)
                if is_there:
                    found_idfs.append(idf)
            if term.is_word:
                rarity[term.label] = idf
        mass = self._found.mass = math.fsum(idfs) or 1.0
        # The rarest first; sorting keeps the order of the question among equals.
        self._found.lookups = sorted(lookups, key=lambda lookup: lookup.df)[:MAX_TERMS]
        self._score_names()
        self._score_chunks(question.line)
        spelled = [each.term for each in self._found.lookups if each.term.literal]
        missing += (term for term in spelled if term.label not in self._spelled)
        is_all = len(self._found.lookups) == len(lookups) and not missing
        hits: list[KeywordHit] = []
        more = self._candidates()
        while more:
            self._ask_all(more)
            self._pool |= more
            file_of = self._postings.files_of(self._connection, self._pool)
            limit, files = self._limit, self._files
            hits = ranked(
                self._connection, self._found, self._pool, file_of, is_all=is_all, limit=limit, files=files
            )
            # Behind those that were lifted there may be more, and notes that a list describes.
            more = self._with_more_words([hit.chunk_id for hit in hits[:CHECKED]], file_of)
            more |= self._found.described - self._pool
        top, kept = (hits[0].strength if hits else 0.0), {id(lookup.term) for lookup in self._found.lookups}
        return KeywordHits(
            hits=hits,
            quality=top / (top + mass),
            match=any_of(dict.fromkeys(way.match for lookup in self._found.lookups for way in lookup.ways)),
            terms=tuple(term for term in terms if id(term) in kept),
            missing=as_typed(missing, terms),
            meant=tuple(self._ways.meant),
            rarity=rarity,
            found_idf=math.fsum(found_idfs),
        )

    def _idf(self, table: Table, df: int) -> float:
        total = self._postings.rows(self._connection, table)
        return math.log(1 + (total - df + 0.5) / (df + 0.5))

    def _score_chunks(self, line: str) -> None:
        """Score all chunks with one of the rarest terms, and what the common ones say of these.

        Until enough are found, those that a common term fits best count as well.
        """
        lookups, sums, held = self._found.lookups, self._found.sums, self._found.held
        rows_read = 0
        for lookup in lookups:
            if rows_read > FOUND_ENOUGH or self._is_common(CHUNKS, lookup):
                break
            rows_read += self._add(CHUNKS, lookup, sums, held)
        self._whole = len(held)
        # What a rule or a name may put first, all terms are asked about.
        self._find_ruled(line, held)
        always, beside = self._ruled, self._beside(lookups)
        for lookup in lookups[self._whole :]:
            if self._scored is None and rows_read > FOUND_ENOUGH:
                self._scored = sums.keys() | always
            among = None if self._scored is None else sorted(self._scored)
            rows_read += self._add(CHUNKS, lookup, sums, held, among, always=always, beside=beside)
        if self._scored is None and self._whole < len(lookups):
            self._scored = sums.keys() | always

    def _add(
        self,
        table: Table,
        lookup: Lookup,
        sums: dict[int, float],
        held: list[dict[int, float]],
        among: list[int] | None = None,
        *,
        always: Collection[int] = (),
        beside: Beside | None = None,
    ) -> int:
        """Add to the sums of rows what a term says of them, and to `held` its weight in those that hold it.

        `among`: the rows that count. None for all, but of a common term for its best ones, those with a sum
        and `always`. Returns how many rows were read.
        """
        holders: dict[int, float] = {}
        held.append(holders)
        rows_read = 0
        # Forms first, the term itself last.
        for way in reversed(lookup.ways):
            df = self._df(table, lookup, way)
            if not df:
                continue
            is_best = way is lookup.ways[0] and among is None and self._is_common(table, lookup)
            best = max(SCORED, self._limit) if is_best else 0
            fits = self._fits(table, way, among=among, best=best, beside=beside)
            if is_best and (known := sums.keys() | always):
                rest = self._fits(table, way, among=sorted(known), beside=beside)
                fits = (dict(fits) | dict(rest)).items()
            if table.least:
                fits = [(row, table.least + fit) for row, fit in fits]
            if lookup.term.literal and table is CHUNKS:
                fits = self._as_spelled(lookup.term, dict(fits))
            elif way.typed and table is NAMES:
                fits = self._as_typed(way.typed, dict(fits))
            # No other form counts more than the word itself.
            worth = way.weight * self._idf(table, max(df, lookup.df) if table is CHUNKS else df)
            for row, fit in fits:
                if fit > 0:
                    # The greater weight stays.
                    if way.weight == 1.0 or holders.get(row, 0.0) < way.weight:
                        holders[row] = way.weight
                else:
                    fit *= -FORM_WEIGHT
                    holders.setdefault(row, FORM_WEIGHT)
                sums[row] = sums.get(row, 0.0) + worth * fit
            rows_read += df if is_best else 0
        return rows_read + len(holders)

    def _is_common(self, table: Table, lookup: Lookup) -> bool:
        """Tell whether only the best rows with a term are read: not of an id, and not among some files."""
        is_id = lookup.term.literal is not None
        return self._files is None and not is_id and self._df(table, lookup, lookup.ways[0]) > MANY_ROWS

    def _df(self, table: Table, lookup: Lookup, way: Way) -> int:
        """Count the rows with a form of a term."""
        return way.df if table is CHUNKS else self._ways.count_names(lookup.term, way.match)

    def _beside(self, lookups: Sequence[Lookup]) -> Beside | None:
        """Return what the rows of terms hold of which all are known; None where it is not worth it."""
        known = lookups[: self._whole]
        rows = sum(each.df for each in known)
        if not rows or max(each.df for each in lookups) < max(LEAST_ROWS, BESIDE * rows):
            return None
        ways = {way.match: way for lookup in known for way in lookup.ways}
        count = self._postings.rows(self._connection, CHUNKS)
        sums: dict[int, float] = {}
        for way in ways.values():
            scale = scale_of(way.df, count)
            for row, fit in self._fits(CHUNKS, way):
                sums[row] = sums.get(row, 0.0) + abs(fit) / scale
        return Beside(match=any_of(ways), sums=sums)

    def _fits(self, table: Table, way: Way, **options: Any) -> Fits:
        typed = way.typed if table is CHUNKS else ""
        return self._postings.fits(
            self._connection, table, way.match, typed=typed, files=self._files, **options
        )

    def _as_typed(self, typed: str, fits: dict[int, float]) -> Fits:
        """Return the fits of names, negative where one holds another word of the same stem."""
        words = set(_PHRASE.findall(typed))
        best = json_ids(nlargest(SPELLED, fits, key=fits.__getitem__))
        for row, text in self._connection.execute(_NAMES, (best,)):
            if words.isdisjoint(_WORD.findall(without_accents(text.lower()))):
                fits[row] = -fits[row]
        return fits.items()

    def _as_spelled(self, term: Term, fits: dict[int, float]) -> Fits:
        """Yield the fits of an id, negative where its tokens stand in a row and it is not spelled so."""
        assert term.literal is not None
        needle = term.label.strip("./~v%") if term.label.isascii() else ""
        rows = self._connection.execute(
            _SPELLINGS, (json_ids(nlargest(SPELLED, fits, key=fits.__getitem__)), needle)
        )
        # A note has its name with `.md` and without.
        exact = {
            row
            for row, *texts, path in rows
            if any(map(term.literal.search, (*texts, path, without_ending(path))))
        }
        if exact:
            self._spelled.add(term.label)
        return ((row, fit if row in exact else -fit) for row, fit in fits.items())

    def _score_names(self) -> None:
        """Score the files whose names hold a term, each by the best of its name documents."""
        sums, held = dict[int, float](), list[dict[int, float]]()
        rows_read, among = 0, None
        for lookup in self._found.lookups:
            if among is None and rows_read > FOUND_ENOUGH:
                among = sorted(sums)
            rows_read += self._add(NAMES, lookup, sums, held, among)
            if lookup.term.in_grams and held[-1]:
                self._spelled.add(lookup.term.label)
        best, terms = strongest(SCORED, sums), [(1 << number, holders) for number, holders in enumerate(held)]
        for row, file_id in self._connection.execute(_FILES_OF_NAMES, (json_ids(best),)):
            self._found.names[file_id] = max(NAME_WEIGHT * sums[row], self._found.names.get(file_id, 0.0))
            mask = 0
            for bit, holders in terms:
                if row in holders:
                    mask |= bit
                    if holders[row] >= HALVES:
                        self._found.named.add(file_id)
            self._found.in_names[file_id] = mask | self._found.in_names.get(file_id, 0)
        names = self._found.names
        if names:
            best = nlargest(NAMED, names, key=lambda file_id: (names[file_id], -file_id))
            self._of_named = self._connection.execute(_OF_NAMED, (NAMED_CHUNKS, json_ids(best))).fetchall()

    def _find_ruled(self, line: str, held: Sequence[Mapping[int, float]]) -> None:
        """Look up what the best sums may not have: the whole question, and rare words as they were typed.

        `line`: the first as a MATCH expression. `held`: the weights of all chunks with each of the rarest
        terms.
        """
        lookups = self._found.lookups
        # Of a compound, or a word in a run of CJK, the line may have other tokens.
        tokens = {*_WORD.findall(line.lower())}
        words = [
            rows.keys()
            for rows, each in zip(held, lookups, strict=False)
            if each.term.is_word and each.term.label in tokens
        ]
        # FTS5 reads all the places of its words: up to 30 ms at a million chunks.
        if line and lookups and (not words or set.intersection(*map(set, words))):
            rows = self._postings.some(self._connection, line, self._files)
            # Of more, some would be left behind.
            self._found.lines = rows if len(rows) < SOME else set()
        self._ruled = self._found.lines | {row for row, ordinal in self._of_named if not ordinal}
        if not held and len(lookups) > 1:
            # With the rarest term come those that hold everything, unless it is common itself.
            everything = " AND ".join(f"({any_of(way.match for way in each.ways)})" for each in lookups)
            self._ruled |= self._postings.some(self._connection, everything, self._files)
        for lookup in lookups:
            if lookup.typed_df <= ALONE_CHUNKS < lookup.df:
                typed = lookup.ways[0].typed
                self._ruled |= self._postings.some(self._connection, typed, self._files, CHUNKS.typed)

    def _candidates(self) -> set[int]:
        """Choose the chunks that may be among the best."""
        sums = self._found.sums
        pool = set(strongest(self._limit, sums))
        # What a rule puts before others is not among the best by its sum alone.
        for holders, lookup in zip(self._found.held, self._found.lookups, strict=True):
            if lookup.df <= ALONE_CHUNKS or lookup.term.is_exact:
                # An id as it is spelled, whatever is nearer to its tokens.
                exact = [each for each, weight in holders.items() if weight == 1.0]
                for rows in (exact if lookup.term.literal else (), holders):
                    pool.update(rows if len(rows) <= self._limit else strongest(self._limit, sums, rows))
        pool.update(row for row, _ in self._of_named if row in sums)
        return pool | self._ruled

    def _ask_all(self, rows: set[int]) -> None:
        """Ask the common terms about chunks that they have not scored."""
        if self._scored is not None and (rest := rows - self._scored):
            sums, held = dict[int, float](), list[dict[int, float]]()
            for lookup in self._found.lookups[self._whole :]:
                self._add(CHUNKS, lookup, sums, held, sorted(rest))
            self._found.sums |= sums
            for mine, added in zip(self._found.held[self._whole :], held, strict=True):
                mine |= added
            self._scored |= rest
        for row in rows:
            self._found.sums.setdefault(row, 0.0)

    def _with_more_words(self, chunk_ids: Sequence[int], file_of: Mapping[int, int]) -> set[int]:
        """Find chunks, beside those that may be hits, that hold the terms of one of these and another one.

        And in the names of their files those of its name: no other comes before it.
        """
        found: list[set[int]] = []
        lookups, names = self._found.lookups, self._found.in_names
        matches = [any_of(way.match for way in each.ways if way.weight >= HALVES) for each in lookups]
        holders: list[set[int]] = []
        masks: dict[tuple[tuple[bool, ...], int], int] = {}
        for place, each in enumerate(chunk_ids):
            mask = tuple(held.get(each, 0.0) >= HALVES for held in self._found.held)
            masks.setdefault((mask, names.get(file_of[each], 0)), place)
        for (mask, name), place in sorted(masks.items(), key=lambda each: sum(each[0][0])):
            held = frozenset(f"({match})" for match in compress(matches, mask)), name
            others = [match for match, is_held in zip(matches, mask, strict=True) if match and not is_held]
            if not 0 < sum(mask) <= FEW_WORDS or held in self._asked or not others:
                continue
            if any(mask[: self._whole]):
                # All chunks with such a term are known, and what else they hold.
                holders = holders or [
                    {row for row, weight in each.items() if weight >= HALVES} for each in self._found.held
                ]
                lacking = compress(holders, [not is_held for is_held in mask])
                rows = set.intersection(*compress(holders, mask)) & set().union(*lacking)
                self._asked[held] = False
            elif place >= ASKED:
                continue
            else:
                all_known = (each for each, is_all in self._asked.items() if is_all)
                if any(terms <= held[0] and not of_name & ~name for terms, of_name in all_known):
                    continue
                match = " AND ".join([*sorted(held[0]), f"({any_of(others)})"])
                named = [file_id for file_id, terms in names.items() if not name & ~terms]
                files = json_ids(named) if name else self._files
                rows = self._postings.some(self._connection, match, files)
                self._asked[held] = len(rows) < SOME
            found.append(rows - self._pool)
        self._ask_all(set().union(*found))
        return {each for rows in found for each in strongest(MORE_WORDS, self._found.sums, rows)}
