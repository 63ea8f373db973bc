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

from memline.shared.search.matches import CHUNKS, Matches
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
    ways: tuple[Way, ...]
    idf: float

    @property
    def df(self) -> int:
        return self.ways[0].df


class Lookups(Struct, frozen=True, kw_only=True):
    """What is searched for a question."""

    #: The rarest first.
    found: Sequence[Lookup] = ()
    #: The idf of all that was asked.
    mass: float = 1.0
    #: Terms of which no form stands in what is searched, and what some of them were taken for.
    missing: tuple[Term, ...] = ()
    meant: tuple[str, ...] = ()
    #: idf of the words, by label.
    rarity: dict[str, float] = {}


def look_up(matches: Matches, terms: Sequence[Term], files: str | None, limit: int) -> Lookups:
    """Find the ways of each term, and keep the `limit` rarest; `files`: JSON array of ids, None for all."""
    weights: dict[str, dict[str, float]] = {}
    for term in terms:
        forms = any_of(forms_of(term.label)) if term.is_word else ""
        weights[term.match] = {term.match: 1.0} | ({forms: FORM_WEIGHT} if forms else {})
    df = matches.counts((each for mine in weights.values() for each in mine), files)
    unknown = [term for term in terms if not any(df[each] for each in weights[term.match])]
    unknown = [term for term in unknown if not term.is_phrase]
    fallbacks = {term.match: any_of(term.fallbacks) for term in unknown}
    df |= matches.counts(filter(None, fallbacks.values()), files)
    meant: list[str] = []
    slips_left = MOST_SLIPS
    for term in unknown:
        found = fallbacks[term.match]
        is_long = len(term.label) in LETTERS and term.label.isalpha()
        if not df.get(found) and slips_left and term.is_word and is_long:
            slips_left -= 1
            if found := matches.commonest(map(quoted, _slips(term.label))):
                df |= matches.counts([found], files)
                meant += [found.strip('"')] if df[found] else []
        weights[term.match] = {found: FORM_WEIGHT} if found else {}
    total, lookups = matches.total(CHUNKS), []
    rarest = idf_of(total, 0)
    idfs = dict.fromkeys((term.match for term in terms), rarest)
    for term in terms:
        if ways := tuple(
            Way(each, weight, df[each]) for each, weight in weights[term.match].items() if df[each]
        ):
            lookups.append(Lookup(term, ways, idf_of(total, ways[0].df)))
            if term not in unknown:
                idfs[term.match] = lookups[-1].idf
    return Lookups(
        # Sorting keeps the order of the question among equals.
        found=sorted(lookups, key=lambda each: each.df)[:limit],
        mass=math.fsum(idfs[term.match] for term in terms if term.typed) or 1.0,
        missing=tuple(term for term in unknown if term.typed),
        meant=tuple(meant),
        rarity={term.label: idfs[term.match] for term in terms if term.is_word},
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
