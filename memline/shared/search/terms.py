"""Choose what finds each term of a question: itself, other forms, its beginning, or a word one letter away.

Porter stemming, which FTS5 does, joins `walk` and `walking` but not `buy` and `bought`, nor `organise` and
`organize`: these are in a list, at a third of the weight of the word itself (locomo .005 of recall).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from msgspec import Struct

from memline.shared.search.matches import CHUNKS, File, Fits, Matches
from memline.shared.search.question import Term, any_of, quoted
from memline.shared.sources.folding import fold, without_accents
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
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґ",
)
_ENDINGS = ("ations", "ation", "ies", "ied", "ing", "ed", "es", "s", "e", "y")


class Way(NamedTuple):
    """One phrase that finds a term."""

    match: str
    weight: float
    #: Chunks that have it.
    df: int


class Lookup(NamedTuple):
    """A term with its ways to be found, the best first, and its idf."""

    term: Term
    ways: Sequence[Way]
    idf: float


class Row(NamedTuple):
    """A chunk as it is stored, with its file."""

    id: int
    file_id: int
    start: int
    end: int
    heading: str
    text: str
    text_hash: bytes
    file: File


#: What a phrase begins with, the number of its term, and the share of the idf that it is.
Needle = tuple[str, int, float]


class Words(Struct):
    """What the words of a question say of chunks."""

    #: What is searched, the rarest first, and the idf of all that was asked.
    found: Sequence[Lookup] = ()
    mass: float = 1.0
    #: Terms of which no form stands in what is searched, and what some of them were taken for.
    missing: tuple[Term, ...] = ()
    meant: tuple[str, ...] = ()
    #: idf of the words, by label.
    rarity: dict[str, float] = {}
    #: Chunk -> its sum.
    sums: dict[int, float] = {}
    #: File -> what its best name adds, and chunk -> the same of its file.
    names: dict[int, float] = {}
    named: dict[int, float] = {}
    #: Of each term the chunks that each of its ways finds, and the weight of that way, the best first.
    held: list[list[tuple[Fits, float]]] = []
    needles: list[Needle] = []
    #: Chunks that were read.
    rows: dict[int, Row] = {}

    def weights(self, chunk_id: int) -> list[float]:
        """Return the weight with which a chunk holds each term; 0 where it does not."""
        return [next((weight for fits, weight in ways if chunk_id in fits), 0.0) for ways in self.held]

    def coverage(self, chunk_id: int) -> float:
        """Return which share of the idf of the question a chunk holds."""
        asked = zip(self.found, self.weights(chunk_id), strict=True)
        share = math.fsum(each.idf * weight for each, weight in asked if each.term.typed)
        return min(1.0, share / self.mass)

    @property
    def quality(self) -> float:
        """Return the best sum as a share of it and all idf of the question."""
        best = max(self.sums.values(), default=0.0)
        return best / (best + self.mass)


def look_up(matches: Matches, terms: Sequence[Term], files: str | None, limit: int) -> Words:
    """Find the ways of each term, and keep the `limit` rarest; `files`: JSON array of ids, None for all."""
    weights: dict[str, dict[str, float]] = {}
    for term in terms:
        forms = any_of(forms_of(term.label)) if term.is_word else ""
        weights[term.match] = {term.match: 1.0} | ({forms: FORM_WEIGHT} if forms else {})
    df = matches.counts((each for mine in weights.values() for each in mine), files)
    unknown = [
        term for term in terms if not term.is_phrase and not any(df[each] for each in weights[term.match])
    ]
    df |= matches.counts((any_of(term.fallbacks) for term in unknown if term.fallbacks), files)
    meant, slips_left = list[str](), MOST_SLIPS
    for term in unknown:
        other = any_of(term.fallbacks)
        is_long = term.is_word and len(term.label) in LETTERS and term.label.isalpha()
        if not df.get(other) and slips_left and is_long:
            slips_left -= 1
            if other := matches.commonest(map(quoted, _slips(term.label))):
                df |= matches.counts([other], files)
                meant += [other.strip('"')] if df[other] else []
        weights[term.match] = {other: FORM_WEIGHT} if other else {}
    total, found = matches.total(CHUNKS), list[Lookup]()
    idfs = dict.fromkeys((term.match for term in terms), idf_of(total, 0))
    for term in terms:
        ways = [Way(each, weight, df[each]) for each, weight in weights[term.match].items() if df[each]]
        if ways:
            found.append(Lookup(term, ways, idf_of(total, ways[0].df)))
            if term not in unknown:
                idfs[term.match] = found[-1].idf
    # Sorting keeps the order of the question among equals.
    found = sorted(found, key=lambda each: each.ways[0].df)[:limit]
    mass = math.fsum(idfs[term.match] for term in terms if term.typed) or 1.0
    return Words(
        found=found,
        mass=mass,
        missing=tuple(term for term in unknown if term.typed),
        meant=tuple(meant),
        rarity={term.label: idfs[term.match] for term in terms if term.is_word},
        needles=[
            (needle, number, way.weight * lookup.idf / mass)
            for number, lookup in enumerate(found)
            for way in lookup.ways
            if not lookup.term.is_phrase
            for needle in needles_of(way.match)
        ],
    )


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
    table = _forms()
    others = table.get(word) or next((table[base] for base in _bases(word) if base in table), ())
    spelled = _SPELLED.sub(lambda match: _OTHER[match[0]], word)
    return (*others, spelled) if spelled != word else others


def _bases(word: str) -> Iterator[str]:
    for end in ("ies", "es", "s", "ing", "ed"):
        if word.endswith(end) and len(word) > len(end) + 2:
            base = word[: -len(end)]
            yield from (base + "y", base, base + "e")


def _slips(word: str) -> set[str]:
    """Return what a word may be if a letter is missing, too many or wrong, or two are exchanged.

    The first letter hardly ever is.
    """
    letters = next((each for each in _ALPHABETS if word[0] in each), _ALPHABETS[0])
    near = {word[:at] + word[at + 1 :] for at in range(1, len(word))}
    near |= {word[:at] + letter + word[at:] for at in range(1, len(word) + 1) for letter in letters}
    near |= {word[:at] + letter + word[at + 1 :] for at in range(1, len(word)) for letter in letters}
    return near | {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(1, len(word) - 1)}


@cache
def _forms() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for group in map(str.split, word_lists()["forms"].replace("\n", "|").split("|")):
        for word in group:
            table[word] = (*table.get(word, ()), *(other for other in group if other != word))
    return table
