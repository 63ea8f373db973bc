"""Choose what finds each term of a question: itself, other forms, its beginning, or a word one letter away.

Porter stemming, which FTS5 does, joins `walk` and `walking` but not `buy` and `bought`, nor `organise` and
`organize`: these are in a list, at a third of the weight of the word itself (locomo .005 of recall).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

from memline.shared.patterns import late
from memline.shared.search.matches import CHUNKS, Matches
from memline.shared.search.question import Term, quoted
from memline.shared.sources.folding import without_accents
from memline.shared.values import value
from memline.shared.words import word_lists

#: What an irregular form, another spelling, a beginning or a corrected word weighs; 1/4 and 1/2 found less.
FORM_WEIGHT = 1 / 3

#: Words of a question that are corrected at most, and their letters: shorter ones are one letter away from
#: many. Of a question in another language no word is there, and each costs a millisecond.
MOST_SLIPS, LETTERS = 4, range(5, 24)

#: Forms whose letters differ by rule. What is no word is nowhere.
_SPELLED = late(
    r"(?<=\w{3})(?:is|iz|ys|yz)(?=(?:e[drs]?|ing|ations?)$)"
    r"|(?<=\w{2})(?:our|or)(?=(?:s|ed|ing|ful|able|ites?|al|hood)?$)"
    r"|(?<=\w{2})(?:[ae]ll?)(?=(?:ed|ing|ers?)$)"
)
_OTHER = {
    one: other
    for pair in ("is iz", "ys yz", "our or", "ell el", "all al")
    for one, other in (pair.split(), pair.split()[::-1])
}
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґ",
)
_ENDINGS = ("ations", "ation", "ies", "ied", "ing", "ed", "es", "s", "e", "y")


@value
class Way:
    """One phrase that finds a term."""

    match: str
    weight: float
    #: Chunks that hold it.
    df: int


@value
class Lookup:
    """A term with its ways to be found, the best first, and its idf."""

    term: Term
    ways: tuple[Way, ...]
    idf: float

    @property
    def df(self) -> int:
        return self.ways[0].df


@value
class Lookups:
    """What is searched for a question."""

    #: The rarest first.
    found: Sequence[Lookup]
    #: The idf of all that was asked.
    mass: float
    #: Terms of which no form stands in what is searched, and what some of them were taken for.
    missing: tuple[Term, ...]
    meant: tuple[str, ...]
    #: idf of the words, by label.
    rarity: dict[str, float]


def look_up(matches: Matches, terms: Sequence[Term], files: str | None, limit: int) -> Lookups:
    """Find the ways of each term, and keep the `limit` rarest; `files`: JSON array of ids, None for all."""
    ways_of = {term.match: _ways(matches, term, files) for term in _counted(matches, terms, files)}
    unknown = [term for term in terms if not ways_of[term.match] and not term.is_phrase]
    matches.counts(CHUNKS, [match for term in unknown for match in term.fallbacks], files)
    meant: list[str] = []
    slips_left = MOST_SLIPS
    for term in unknown:
        found = [each for each in term.fallbacks if matches.count(CHUNKS, each, files)]
        if not found and slips_left and term.is_word and len(term.label) in LETTERS and term.label.isalpha():
            slips_left -= 1
            near = [*map(quoted, _slips(term.label))]
            counts = matches.counts(CHUNKS, near, files, keep=False)
            best = max(near, key=lambda each: (counts[each], each), default="")
            found = [best] if best and counts[best] else []
            meant += (each.strip('"') for each in found)
        df = {each: matches.count(CHUNKS, each, files) for each in found}
        ways_of[term.match] = [Way(match=each, weight=FORM_WEIGHT, df=df[each]) for each in found]
    total = matches.total(CHUNKS)
    is_missing = {id(term) for term in unknown}
    lookups = [
        Lookup(term=term, ways=tuple(ways), idf=idf_of(total, ways[0].df))
        for term in terms
        if (ways := ways_of[term.match])
    ]
    idfs = {id(each.term): 0.0 if id(each.term) in is_missing else each.idf for each in lookups}
    rarest = idf_of(total, 0)
    idfs = {id(term): idfs.get(id(term)) or rarest for term in terms}
    return Lookups(
        # Sorting keeps the order of the question among equals.
        found=sorted(lookups, key=lambda each: each.df)[:limit],
        mass=math.fsum(idfs[id(term)] for term in terms if term.is_asked) or 1.0,
        missing=tuple(term for term in unknown if term.is_asked),
        meant=tuple(meant),
        rarity={term.label: idfs[id(term)] for term in terms if term.is_word},
    )


def idf_of(total: int, df: int) -> float:
    """Return the idf of a phrase, above zero: FTS5's own is clamped where half of the chunks hold it."""
    return math.log(1 + (total - df + 0.5) / (df + 0.5))


def plain(text: str) -> str:
    """Return a folded text in the form in which needles are looked for in it."""
    return without_accents(text).lower()


def needle_of(match: str) -> str:
    """Return what the forms of a phrase begin with, roughly."""
    return stem(plain(match.rpartition(" : ")[2].strip('" *')))


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
    return (*others, spelled) if spelled != word else tuple(others)


def _counted(matches: Matches, terms: Sequence[Term], files: str | None) -> Sequence[Term]:
    """Count all that may find the terms in one statement."""
    every = [each for term in terms for each in (term.match, *term.spellings, *_forms_as_matches(term))]
    matches.counts(CHUNKS, every, files)
    return terms


def _ways(matches: Matches, term: Term, files: str | None) -> list[Way]:
    same = [(match, 1.0) for match in (term.match, *term.spellings)]
    weighed = same + [(match, FORM_WEIGHT) for match in _forms_as_matches(term)]
    counted = ((match, weight, matches.count(CHUNKS, match, files)) for match, weight in weighed)
    return [Way(match=match, weight=weight, df=df) for match, weight, df in counted if df]


def _forms_as_matches(term: Term) -> tuple[str, ...]:
    return tuple(map(quoted, forms_of(term.label))) if term.is_word else ()


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
    lists = word_lists()
    groups = "|".join((lists["forms"], lists["spellings"])).replace("\n", "|").split("|")
    table: dict[str, tuple[str, ...]] = {}
    for group in map(str.split, groups):
        for word in group:
            table[word] = (*table.get(word, ()), *(other for other in group if other != word))
    return table
