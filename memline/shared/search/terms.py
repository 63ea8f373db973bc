"""Choose what finds each term of a question: itself, other forms, its beginning, or a word one letter away.

Porter stemming, which FTS5 does, joins `walk` and `walking` but not `buy` and `bought`, nor `organise` and
`organize`: these are in a list, at a third of the weight of the word itself (locomo .005 of recall).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from itertools import chain, islice
from string import ascii_lowercase
from typing import NamedTuple

from msgspec import Struct

from memline.shared.note_names import fold, without_accents
from memline.shared.search.matches import CHUNKS, Fits, Matches, Row
from memline.shared.search.question import Term, any_of, quoted
from memline.shared.words import word_lists

#: What an irregular form, another spelling, a beginning or a corrected word weighs; 1/4 and 1/2 found less.
FORM_WEIGHT = 1 / 3

#: Words of a question that are corrected at most, and their letters: shorter ones are one letter away from
#: many. Of a question in another language no word is there, and each costs a millisecond.
MOST_SLIPS, LETTERS = 4, range(5, 24)

#: Letters that differ by rule in British and American words. What is no word is nowhere.
_SPELLED = re.compile(
    r"(?<=\w{3})(?:is|iz|ys|yz)(?=(?:e[drs]?|ing|ations?)$)|(?<=\w{2})(?:our|or)(?=(?:s|ed|ing|ful|able)?$)"
)
_OTHER = {"is": "iz", "iz": "is", "ys": "yz", "yz": "ys", "our": "or", "or": "our"}
_ENDINGS = ("ations", "ation", "ies", "ied", "ing", "ed", "es", "s", "e", "y")


class Way(NamedTuple):
    """A phrase that finds a term."""

    match: str
    weight: float


class Lookup(Struct):
    """A term as it is searched."""

    term: Term
    #: The best first.
    ways: Sequence[Way]
    idf: float
    #: The chunks that each way finds.
    found: Sequence[Fits] = ()

    def weight(self, chunk_id: int) -> float:
        """Return the weight with which a chunk holds the term; 0 where it does not."""
        for way, fits in zip(self.ways, self.found, strict=False):
            if chunk_id in fits:
                return way.weight
        return 0.0


#: What a phrase begins with, the number of its term, and the share of the idf that it is.
Needle = tuple[str, int, float]


class Words(Struct):
    """What the words of a question say of chunks."""

    #: What is searched, the rarest first, and the idf of all that was asked.
    lookups: Sequence[Lookup] = ()
    mass: float = 1.0
    #: Words of the question, as typed, of which no form stands in what is searched.
    missing: tuple[str, ...] = ()
    #: Chunk -> its sum, and what the best name of its file added to it.
    sums: dict[int, float] = {}
    named: dict[int, float] = {}
    needles: Sequence[Needle] = ()
    #: Chunks that were read.
    rows: dict[int, Row] = {}

    def holds(self, chunk_id: int) -> bool:
        """Tell whether a chunk has a term of the question."""
        return any(each.weight(chunk_id) for each in self.lookups)

    def coverage(self, chunk_id: int) -> float:
        """Return which share of the idf of the question a chunk holds."""
        share = math.fsum(each.idf * each.weight(chunk_id) for each in self.lookups if each.term.typed)
        return min(1.0, share / self.mass)


def look_up(matches: Matches, terms: Sequence[Term], files: str | None, limit: int) -> Words:
    """Find the ways of each term, and keep the `limit` rarest; `files`: JSON array of ids, None for all."""
    forms = {term.match: any_of(forms_of(term.label)) for term in terms if term.kind == "word"}
    df = matches.counts((*(term.match for term in terms), *filter(None, forms.values())), files)
    asked = {
        term: [
            Way(match, weight)
            for match, weight in ((term.match, 1.0), (forms.get(term.match, ""), FORM_WEIGHT))
            if df.get(match)
        ]
        for term in terms
    }
    unknown = [term for term, ways in asked.items() if not ways and term.kind != "phrase"]
    others = _stand_ins(matches, unknown, files)
    total, lookups = matches.totals[CHUNKS], list[Lookup]()
    mass = 0.0
    for term, ways in asked.items():
        idf = idf_of(total, df[ways[0].match] if ways else 0)
        mass += idf if term.typed else 0.0
        if ways := ways or others.get(term, []):
            idf = idf_of(total, matches.count(CHUNKS, ways[0].match))
            lookups.append(Lookup(term, ways, idf))
    # The rarest first; sorting keeps the order of the question among equals.
    lookups = sorted(lookups, key=lambda each: -each.idf)[:limit]
    needles = [
        (needle, number, way.weight * each.idf / (mass or 1.0))
        for number, each in enumerate(lookups)
        for way in each.ways
        if each.term.kind != "phrase"
        for needle in needles_of(way.match)
    ]
    # Of a run of CJK characters only where none of its pairs was found.
    known = {term.typed for term in asked.keys() - unknown} | {""}
    missing = tuple(dict.fromkeys(term.typed for term in unknown if term.typed not in known))
    return Words(lookups=lookups, mass=mass or 1.0, missing=missing, needles=needles)


def _stand_ins(matches: Matches, unknown: Sequence[Term], files: str | None) -> dict[Term, list[Way]]:
    """Find what stands in for unknown terms: pieces, beginnings, else the commonest word one slip away."""
    parts = {term: any_of(term.fallbacks) for term in unknown if term.fallbacks}
    df = matches.counts(parts.values(), files)
    ways = {term: [Way(match, FORM_WEIGHT)] for term, match in parts.items() if df[match]}
    wrong = [each for each in unknown if each not in ways and each.label.isalpha()]
    slips = {each: [*map(quoted, _slips(each.label))] for each in wrong if len(each.label) in LETTERS}
    some = dict(islice(slips.items(), MOST_SLIPS))
    df = matches.counts(chain(*some.values()), files)
    for term, near in some.items():
        best = max(near, key=lambda each: (df[each], each))
        if df[best]:
            ways[term] = [Way(best, FORM_WEIGHT)]
    return ways


def idf_of(total: int, df: int) -> float:
    """Return the idf of a phrase, above zero: FTS5's own is clamped where half of the chunks have it."""
    return math.log(1 + (total - df + 0.5) / (df + 0.5))


def plain(text: str) -> str:
    """Return a text in the form in which needles are looked for in it."""
    return text.lower() if text.isascii() and "&" not in text else without_accents(fold(text)).lower()


def needles_of(match: str) -> list[str]:
    """List what the forms of the phrases of a term begin with, roughly."""
    phrases = (each.rpartition(" : ")[2].strip('" *') for each in match.split(" OR "))
    return [needle for each in phrases if (needle := stem(plain(each)))]


def stem(word: str) -> str:
    """Take a common English ending off."""
    if not word.isalpha() or not word.isascii():
        return word
    end = next((each for each in _ENDINGS if word.endswith(each) and len(word) - len(each) >= 3), "")
    return word[: len(word) - len(end)]


def forms_of(word: str) -> tuple[str, ...]:
    """List the irregular forms and other spellings of a lower-case word; none for most."""
    others = tuple(each for each in _forms().get(stem(word), ()) if stem(each) != stem(word))
    spelled = _SPELLED.sub(lambda match: _OTHER[match[0]], word)
    return (*others, spelled) if spelled != word else others


def _slips(word: str) -> set[str]:
    """Return what a word may be if a letter is missing, too many or wrong, or two are exchanged.

    The first letter hardly ever is.
    """
    letters = ascii_lowercase
    near = {word[:at] + word[at + 1 :] for at in range(1, len(word))}
    near |= {word[:at] + letter + word[at:] for at in range(1, len(word) + 1) for letter in letters}
    near |= {word[:at] + letter + word[at + 1 :] for at in range(1, len(word)) for letter in letters}
    return near | {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(1, len(word) - 1)}


@cache
def _forms() -> dict[str, tuple[str, ...]]:
    """Read the groups of forms: what one of them ends in without its ending -> all of them."""
    table: dict[str, tuple[str, ...]] = {}
    for group in map(str.split, word_lists()["forms"].replace("\n", "|").split("|")):
        for word in group:
            table[stem(word)] = (*table.get(stem(word), ()), *group)
    return table
