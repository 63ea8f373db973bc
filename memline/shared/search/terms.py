"""Choose what finds each term of a question: itself, other forms, its beginning, or a word one letter away.

Porter stemming, which FTS5 does, joins `walk` and `walking` but not `buy` and `bought`, nor `organise` and
`organize`: these are in a list, at a third of the weight of the word itself (locomo .005 of recall).
"""

import math
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain
from string import ascii_lowercase

from msgspec import Struct

from memline.shared.note_names import fold, without_accents
from memline.shared.search.matches import CHUNKS, Fits, Matches
from memline.shared.search.question import Term, any_of, quoted
from memline.shared.words import word_lists

#: What an irregular form, another spelling, a beginning or a corrected word weighs; 1/4 and 1/2 found less.
FORM_WEIGHT = 1 / 3

#: Words of a question that are corrected at most (each takes a millisecond), and their letters: shorter ones
#: are one letter away from many.
MOST_SLIPS, LETTERS = 4, range(5, 24)

#: Letters that differ by rule in British and American words. What is no word is nowhere.
_SPELLED = re.compile(
    r"(?<=\w{3})(?:is|iz|ys|yz)(?=(?:e[drs]?|ing|ations?)$)|(?<=\w{2})(?:our|or)(?=(?:s|ed|ing|ful|able)?$)"
)
_OTHER = {"is": "iz", "iz": "is", "ys": "yz", "yz": "ys", "our": "or", "or": "our"}
_ENDINGS = ("ations", "ation", "ies", "ied", "ing", "ed", "es", "s", "e", "y")


class Lookup(Struct):
    """A phrase that finds a term."""

    term: Term
    match: str
    weight: float
    idf: float
    #: The chunks that have it.
    fits: Fits = {}


#: What a phrase begins with, the label of its term, and the share of the idf that it is.
Needle = tuple[str, str, float]


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

    def terms_of(self, chunk_id: int) -> dict[str, Lookup]:
        """Return the terms that a chunk has by their labels, each with the best phrase that finds it."""
        return {each.term.label: each for each in reversed(self.lookups) if chunk_id in each.fits}

    def coverage(self, chunk_id: int) -> float:
        """Return which share of the idf of the question a chunk holds."""
        held = dict[str, float]()
        for each in self.lookups:
            # The rarest phrase of a term comes first.
            if chunk_id in each.fits and each.term.typed:
                held.setdefault(each.term.label, each.idf * each.weight)
        return min(1.0, math.fsum(held.values()) / self.mass)


def look_up(matches: Matches, terms: Sequence[Term], limit: int) -> Words:
    """Find what finds each term, and keep the `limit` rarest."""
    phrases = {term: [(term.match, 1.0)] for term in terms}
    for term in terms:
        if term.kind == "word" and (forms := any_of(forms_of(term.label))):
            phrases[term].append((forms, FORM_WEIGHT))
    df = matches.counts((match for some in phrases.values() for match, _ in some))
    asked = {term: [each for each in some if df[each[0]]] for term, some in phrases.items()}
    unknown = [term for term, some in asked.items() if not some and term.kind != "phrase"]
    total = matches.totals[CHUNKS]
    idfs = [idf_of(total, df[some[0][0]] if some else 0) for term, some in asked.items() if term.typed]
    mass = math.fsum(idfs) or 1.0
    lookups = [
        Lookup(term, match, weight, idf_of(total, matches.count(CHUNKS, match)))
        for term, some in (asked | _stand_ins(matches, unknown)).items()
        for match, weight in some
    ]
    # The rarest first; sorting keeps the order of the question among equals.
    lookups = sorted(lookups, key=lambda each: -each.idf)[:limit]
    needles = [
        (needle, each.term.label, each.weight * each.idf / mass)
        for each in lookups
        if each.term.kind != "phrase"
        for needle in needles_of(each.match)
    ]
    # Of a run of CJK characters only where none of its pairs was found.
    known = {term.typed for term in asked.keys() - unknown} | {""}
    missing = tuple(dict.fromkeys(term.typed for term in unknown if term.typed not in known))
    return Words(lookups=lookups, mass=mass, missing=missing, needles=needles)


def _stand_ins(matches: Matches, unknown: Sequence[Term]) -> dict[Term, list[tuple[str, float]]]:
    """Find what stands in for unknown terms: pieces or beginnings, else the commonest word one slip away."""
    others = {term: [any_of(term.fallbacks)] for term in unknown if term.fallbacks}
    found = dict[Term, list[tuple[str, float]]]()
    for _ in range(2):
        df = matches.counts(chain(*others.values()))
        best = {term: max(some, key=lambda each: (df[each], each)) for term, some in others.items()}
        found |= {term: [(match, FORM_WEIGHT)] for term, match in best.items() if df[match]}
        wrong = [each for each in unknown if each not in found and each.label.isalpha()]
        some = [each for each in wrong if len(each.label) in LETTERS][:MOST_SLIPS]
        others = {each: [*map(quoted, _slips(each.label))] for each in some}
    return found


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


@lru_cache(maxsize=10_000)
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
    """Return what a word may be if a letter behind the first is missing, too many, wrong or exchanged."""
    near = set[str]()
    for at in range(1, len(word) + 1):
        before, here, behind = word[:at], word[at : at + 1], word[at + 1 :]
        near |= {before + behind, before + behind[:1] + here + behind[1:]}
        near |= {before + letter + rest for letter in ascii_lowercase for rest in (here + behind, behind)}
    return near


@cache
def _forms() -> dict[str, tuple[str, ...]]:
    """Read the groups of forms: what one of them ends in without its ending -> all of them."""
    table: dict[str, tuple[str, ...]] = {}
    for group in re.split(r"[\n|]", word_lists()["forms"]):
        for word in group.split():
            table[stem(word)] = (*table.get(stem(word), ()), *group.split())
    return table
