"""Find in what forms the index holds a term, and where terms stand together in a text.

Porter stemming, which SQLite does, joins `walk` and `walking` but not `buy` and `bought`; and it joins
`import` and `important`. Irregular forms and synonyms, at a third of the weight of the word itself, are worth
0.01 of recall on conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from memline.shared.index.driver import json_ids
from memline.shared.search.postings import CHUNKS, NAMES, Postings
from memline.shared.search.query import Term, any_of, quoted
from memline.shared.search.word_forms import (
    endings,
    inflections,
    may_be_wrong,
    other_endings,
    related,
    slips_of,
    spellings,
)
from memline.shared.sources.folding import without_accents
from memline.shared.values import replace, value
from memline.shared.words import FOREIGN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: What counts less than the word itself; 1/4 and 1/2 found less.
FORM_WEIGHT = 1 / 3

#: What two words, or another spelling, count beside the one that was asked, where that stands somewhere, too;
#: from this weight on a chunk holds what was asked. `HTTPS URL` is not quite `httpUrl`. Abstracts lost .003
#: with 0.8.
HALVES = 0.85

#: Characters within which terms stand together; 400 found less.
WINDOW = 200

#: Words of a question that are looked for as typed wrong, at most. Of one in another language no word is
#: there: 24 words of 23 letters took 85 ms, and while full text is in 63 segments, as in an import, 2.3 s.
MOST_SLIPS = 4

#: Chunks with a word from which on it is not looked for as two: common words are rarely compounds.
COMMON = 1_000

_ANY = (
    "SELECT 1 FROM {0} JOIN {1} ON {1}.id = {0}.rowid WHERE {0} MATCH ?"
    " AND {1}.file_id IN (SELECT value FROM json_each(?)) LIMIT 1"
)
# Of words, which of them stand in chunks as they are, in most of them first: a millisecond for 500 words.
_COMMONEST = (
    "WITH found AS MATERIALIZED ("
    "SELECT value, (SELECT count(*) FROM forms_fts WHERE forms_fts MATCH value) AS chunks FROM json_each(?))"
    " SELECT value, chunks FROM found WHERE chunks ORDER BY chunks DESC, value"
)
_TEXTS = "SELECT id, ifnull(folded, text) FROM chunks WHERE id IN (SELECT value FROM json_each(?))"


@value
class Way:
    """One phrase that is looked up for a term."""

    match: str
    weight: float
    #: Chunks that hold it.
    df: int
    #: The word and its inflections, where some of these chunks hold another word of the same stem.
    typed: str = ""
    #: Chunks with the word as it was typed, or inflected.
    typed_df: int


@value
class Lookup:
    """A term with its ways to be found, and its idf."""

    term: Term
    ways: list[Way]
    idf: float
    #: The idf of the word as it was typed, or inflected.
    typed_idf: float

    @property
    def df(self) -> int:
        return self.ways[0].df

    @property
    def typed_df(self) -> int:
        return self.ways[0].typed_df


class Ways:
    """Looks terms up; `files`: a JSON array of the file ids to stay in, None for all."""

    def __init__(self, connection: Connection, files: str | None, postings: Postings) -> None:
        self._connection = connection
        self._files = files
        self._postings = postings
        #: What words that were typed wrong were taken for.
        self.meant: list[str] = []
        self._slips_left = MOST_SLIPS

    def of(self, term: Term, words: Sequence[str], *, with_forms: bool) -> tuple[list[Way], bool]:
        """Return what finds a term, itself first, and whether a form of it is there at all."""
        ways = [way for match in (term.match, *term.spellings) if (way := self._way(match, 1.0))]
        # One look-up for all, since hardly any of them is there.
        is_rare = ways[0].df <= COMMON if ways else term.is_word
        if term.halves and is_rare and self._count(CHUNKS.name, any_of(term.halves)):
            weight = HALVES if ways else 1.0
            ways += [way for match in term.halves if (way := self._way(match, weight))]
        is_there = bool(ways)
        if with_forms:
            inflected = inflections(term.label)
            with_endings = self._with_endings(term)
            inflected += with_endings
            if ways and ways[0].match == term.match and term.label.isalpha():
                typed = any_of(map(quoted, inflected))
                # The word itself is in most of them, and asking for all forms takes three times as long.
                count = self._count(CHUNKS.typed, quoted(term.label))
                if count < ways[0].df:
                    count = self._count_forms(inflected)
                if count < ways[0].df:
                    is_there = count > 0 or len(ways) > 1
                    weight, typed = (1.0, typed) if count else (FORM_WEIGHT, "")
                    ways[0] = replace(ways[0], weight=weight, typed=typed, typed_df=count or ways[0].df)
            weight = HALVES if ways else 1.0
            others = [*spellings(term.label), *self._other_stems(term, with_endings)]
            spelled = [way for other in others if (way := self._way(quoted(other), weight))]
            ways, is_there = ways + spelled, is_there or bool(spelled)
            for other, is_form in related(term.label).items():
                # To the stemmer `try` and `tried` are two words.
                weight = 1.0 if other in inflected else FORM_WEIGHT
                if other not in words and (way := self._way(quoted(other), weight)):
                    ways.append(way)
                    is_there = is_there or is_form
        ways += [way for match in term.synonyms if (way := self._way(match, FORM_WEIGHT))]
        df = 0 if ways else self.count_names(term, term.match)
        if df and self._is_searched(NAMES.name, term.match):
            # CJK text of a path is among the pairs of its name alone.
            return [Way(match=term.match, weight=1.0, df=df, typed_df=df)], True
        if not ways:
            ways = [way for match in term.fallbacks if (way := self._way(match, FORM_WEIGHT))]
        if not ways and with_forms and self._slips_left and may_be_wrong(term.label):
            self._slips_left -= 1
            way = self._meant(slips_of(term.label)) or self._meant(other_endings(term.label, term.language))
            ways = [way] if way else []
        return ways, is_there

    def _meant(self, near: Iterable[str]) -> Way | None:
        """Return what finds the commonest of some words, which is meant by one that is nowhere."""
        # The others may be in files that are not searched.
        found = ((word, self._way(quoted(word), FORM_WEIGHT)) for word in self._there(near))
        word, way = next((each for each in found if each[1]), ("", None))
        self.meant += [word] if way else []
        return way

    def _there(self, words: Iterable[str]) -> list[str]:
        """Return which of some words the notes have, the commonest first.

        As they are: one that no note has may share the stem of a word of the notes.
        """
        rows = self._connection.execute(_COMMONEST, (f"[{','.join(map(quoted, words))}]",))
        return [word for word, _ in rows.fetchall()]

    def _with_endings(self, term: Term) -> list[str]:
        """Return in which other endings of its language a word stands in the notes."""
        words = endings(term.label, term.language) if term.language in FOREIGN else ()
        return [each for each in words if self._postings.count(self._connection, CHUNKS.typed, quoted(each))]

    def _other_stems(self, term: Term, words: Iterable[str]) -> list[str]:
        """Return which forms of a word the stemmer takes for another one: of `Termin` it knows `Termine`."""
        return [
            word
            for word in words
            if self._postings.count(self._connection, CHUNKS.name, f"{quoted(word)} NOT {term.match}")
        ]

    def _way(self, match: str, weight: float) -> Way | None:
        df = self._count(CHUNKS.name, match)
        return Way(match=match, weight=weight, df=df, typed_df=df) if df else None

    def _count(self, table: str, match: str) -> int:
        """Count the chunks with a phrase; 0 where it is in none of those that are searched."""
        df = self._postings.count(self._connection, table, match)
        return df if df and self._is_searched(table, match) else 0

    def _count_forms(self, forms: Sequence[str]) -> int:
        """Do so with one of the forms of a word; the first is the word itself."""
        word, *others = map(quoted, forms)
        df = self._postings.count(self._connection, CHUNKS.typed, word)
        if others:
            # Those of a common word are rare beside it, and FTS5 skips what none of them has.
            rest = f"({any_of(others)}) NOT {word}"
            df += self._postings.count(self._connection, CHUNKS.typed, rest)
        return df if df and self._is_searched(CHUNKS.typed, any_of((word, *others))) else 0

    def _is_searched(self, table: str, match: str) -> bool:
        # What is rare is known from all notes; whether it is there, from those that are searched.
        if self._files is None:
            return True
        query = _ANY.format(table, "names" if table == NAMES.name else "chunks")
        return self._connection.execute(query, (match, self._files)).fetchone() is not None

    def count_names(self, term: Term, match: str) -> int:
        # A day of the question is looked for in the path and the headings of a chunk.
        return self._postings.count(self._connection, NAMES.name, match) if term.is_asked else 0


def needle_of(match: str) -> str:
    """Return what all forms of a phrase begin with."""
    phrase = match.rpartition(" : ")[2].strip('" *')
    forms = [phrase]
    if phrase.isalpha():
        # Not `dies` of `dying`: what they begin with alike is in too many words.
        forms += (each for each in inflections(phrase) if each[:2] == phrase[:2])
    first, last = min(forms), max(forms)
    differ = (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differ, len(first))]


def needles_of(lookups: Sequence[Lookup], mass: float) -> list[tuple[str, int, float]]:
    """Return for each way of each term what its forms begin with, the number of the term, and its share."""
    read = _reader(lookups)
    return [
        (needle, number, way.weight * lookup.idf / mass)
        for number, lookup in enumerate(lookups)
        for way in lookup.ways
        # The forms of `eing` begin with nothing.
        if (needle := read(needle_of(way.match)))
    ]


def _reader(lookups: Sequence[Lookup]) -> Callable[[str], str]:
    """Return what takes accents off, where words of a language are meant whose forms differ in them."""
    is_foreign = any(lookup.term.language in FOREIGN for lookup in lookups)
    return without_accents if is_foreign else str


def share_of(
    text: str, lookups: Sequence[Lookup], needles: Sequence[tuple[str, int, float]]
) -> tuple[float, float]:
    """Return the most that the terms within WINDOW characters of a folded text are worth, by their needles.

    And how early they begin: 1 at the beginning, 1/2 after WINDOW characters, and 0 where none is.
    """
    text = _reader(lookups)(text.lower())
    found: list[tuple[int, int, float]] = []
    for needle, number, worth in needles:
        at = text.find(needle)
        while at >= 0:
            if not at or not text[at - 1].isalnum():
                found.append((at, number, worth))
            at = text.find(needle, at + len(needle))
    found.sort()
    most = 0.0
    for first, (start, _, _) in enumerate(found):
        best: dict[int, float] = {}
        for at, number, worth in islice(found, first, None):
            if at > start + WINDOW:
                break
            if worth > best.get(number, 0.0):
                best[number] = worth
        most = max(most, sum(best.values()))
    return most, WINDOW / (WINDOW + found[0][0]) if found else 0.0


def near(
    connection: Connection,
    chunk_ids: Iterable[int],
    lookups: Sequence[Lookup],
    mass: float,
    known: Collection[int],
) -> Iterator[tuple[int, tuple[float, float]]]:
    """Yield of chunks, but for `known`, which share of the idf stands together, and how early a term does."""
    new = [each for each in chunk_ids if each not in known]
    if not new:
        return
    needles = needles_of(lookups, mass)
    for chunk_id, text in connection.execute(_TEXTS, (json_ids(new),)):
        yield chunk_id, share_of(text, lookups, needles)
