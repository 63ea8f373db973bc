"""List the forms that a word may have: plain inflections, spellings, endings of other languages, slips.

Plain inflections and most spellings are known by rule, irregular forms and synonyms by list. Which of them a
note holds is another matter (`forms.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

from memline.shared.patterns import late
from memline.shared.sources.folding import without_accents
from memline.shared.words import FOREIGN, word_lists

#: Letters of a word from which on it may be typed wrong, since shorter words are one letter away from many;
#: and from which on it is not looked for as that, nor as two.
LONG, MOST_LETTERS = 5, 24

#: Letters that a word has before an ending of another language, and where the language is not known.
STEM, GUESSED_STEM = 3, 4


def may_be_wrong(word: str) -> bool:
    """Tell whether a word is long enough to be known when typed wrong, and not too long to be a word."""
    return LONG <= len(word) < MOST_LETTERS and word.isalpha()


def slips_of(word: str) -> Iterator[str]:
    """Yield what a long word may be if one letter is missing, too many or wrong, or two are exchanged.

    The first one hardly ever is.
    """
    letters = next((each for each in _ALPHABETS if word[0] in each), _ALPHABETS[0])
    for at in range(1, len(word) + 1):
        before, after = word[:at], word[at:]
        yield from (before + letter + after for letter in letters)
        if after:
            yield from (before + letter + after[1:] for letter in ("", *letters))
            yield before + after[1::-1] + after[2:]


def endings(word: str, language: str, *, least: int = STEM, without: str = "") -> list[str]:
    """List a lower-case word with the other endings that it may have in one of `words.FOREIGN`.

    `least`: letters before an ending. `without`: one that is none.
    """
    plain = without_accents(word)
    # FTS5 knows some letters and marks by which a word is two.
    if not plain.isalpha():
        return []
    found: dict[str, None] = {}
    for group in word_lists()[f"endings.{language}"].split("|"):
        ends = [each.strip("-") for each in group.split() if each != without]
        for end in ends:
            if plain.endswith(end) and len(plain) - len(end) >= least:
                found |= dict.fromkeys(plain[: len(plain) - len(end)] + other for other in ends)
    found.pop(plain, None)
    return [*found]


def other_endings(word: str, language: str) -> list[str]:
    """List what a word may be that is nowhere: with the endings of its language, or of any if none is known.

    In English, `Docker` is no form of `dock`, and `printer` none of `print`.
    """
    if language:
        return endings(word, language) if language in FOREIGN else []
    without = "er" if word.isascii() else ""
    guessed = (endings(word, each, least=GUESSED_STEM, without=without) for each in FOREIGN)
    return [*dict.fromkeys(chain.from_iterable(guessed))]


def related(word: str) -> dict[str, bool]:
    """Return other forms and synonyms of a lower-case word, with whether it is a form; none for most."""
    groups = _related_words()
    for form in _bases(word):
        if form in groups:
            return {other: is_form for other, is_form in groups[form].items() if other != word}
    return {}


def synonyms_of_two(first: str, second: str) -> list[str]:
    """List synonyms of a verb of two lower-case words, in any form of the first; none for most pairs."""
    groups = _related_words()
    return [other for form in _bases(first) for other in groups.get(f"{form}_{second}", ())]


def spellings(word: str) -> list[str]:
    """List how else British and American English spell a lower-case word."""
    ends = [(size, word[-size:]) for size in range(2, 9) if word[-size:] in _SPELLED]
    others = [word[:-size] + _SPELLED[end][1] for size, end in ends if len(word) >= size + _SPELLED[end][0]]
    spelled = _spelled_words()
    others += (spelled[base] for base in _bases(word) if base in spelled)
    return list(dict.fromkeys(others))


@cache
def _spelled_words() -> dict[str, str]:
    pairs = (pair.split() for pair in word_lists()["spellings"].strip().replace("\n", "|").split("|"))
    return {one: other for pair in pairs for one, other in (pair, pair[::-1])}


@cache
def _plain_words() -> dict[str, list[str]]:
    return {member: members for members in _groups(word_lists()["plain"]) for member in members}


def _groups(section: str) -> Iterator[list[str]]:
    return map(str.split, section.replace("\n", "|").split("|"))


@cache
def _related_words() -> dict[str, dict[str, bool]]:
    table: dict[str, dict[str, bool]] = {}
    lists = word_lists()
    for section, is_form in (("plain", True), ("forms", True), ("synonyms", False)):
        for members in _groups(lists[section]):
            for member in members:
                others = table.setdefault(member, {})
                for other in members:
                    # To look for two words in a row, FTS5 reads all the places of both.
                    if other != member and "_" not in other:
                        others.setdefault(other, is_form)
    return table


#: *Organise* and *organize*, *colour* and *color*, *travelled* and *traveled*. What is no word is nowhere.
#: Ending -> letters before it, and the other ending. No patterns: to compile six took half a millisecond.
_SPELLED = {
    one + suffix: (least, other + suffix)
    for least, pairs, suffixes in (
        (3, ("is iz", "ys yz"), ("e", "ed", "er", "es", "ing", "ation", "ations")),
        (2, ("our or",), ("", "s", "ed", "ing", "ful", "able", "less", "ite", "ites", "al", "hood")),
        (2, ("ell el", "all al"), ("ed", "ing", "er", "ers")),
    )
    for pair in pairs
    for one, other in (pair.split(), pair.split()[::-1])
    for suffix in suffixes
}

#: One vowel between consonants: `car` and `hop` double the last, `hope` and `care` lose their e.
_SHORT = late("[^aeiouy]*[aeiouy][^aeiouywx]")
#: The letters that may be missing or wrong in a word of these.
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґ",
)
_HISSES = ("s", "x", "z", "ch", "sh")


def _bases(word: str) -> list[str]:
    """List `word` and what it may be the plural, the past or the -ing of."""
    bases = [word]
    if len(word) < 4 or word in _uninflected():
        return bases
    if word.endswith("ies"):
        bases += [word[:-3] + "y", word[:-1]]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        bases.append(word[:-1])
        if word.endswith("es") and word[:-2].endswith((*_HISSES, "o")):
            bases.append(word[:-2])
    for ending in ("ed", "ing"):
        stem = word.removesuffix(ending)
        if stem == word or not re.search("[aeiouy]", stem):
            continue
        if stem.endswith("e"):
            bases.append(stem + "e" * (ending == "ed"))
        elif _SHORT.fullmatch(stem):
            bases.append(stem + "e")
        else:
            bases += [stem, stem + "e"]
            if stem[-1] == stem[-2:-1]:
                bases.append(stem[:-1])
            if ending == "ed" and stem.endswith("i"):
                bases.append(stem[:-1] + "y")
    return bases


def inflections(word: str) -> list[str]:
    """List `word`, what it may be a plain inflection of, and the plain inflections of these."""
    forms: dict[str, None] = {word: None}
    if len(word) < 3:
        return [*dict.fromkeys((word, *_plain_words().get(word, ())))]
    for base in _bases(word):
        forms[base] = None
        last = base[-1]
        if last == "y" and base[-2:-1] not in "aeiou":
            more = [base[:-1] + "ies", base[:-1] + "ied", base + "ing"]
        elif last == "e":
            more = [base + "s", base + "d", base[:-1] + "ing", base + "ing"]
        elif base.endswith(_HISSES):
            more = [base + "es", base + "ed", base + "ing"]
        else:
            doubled = base + last if last not in "aeiouwxy" and base[-2:-1] in "aeiouy" else base
            single = doubled if _SHORT.fullmatch(base) else base
            more = [base + "s", *({base + "es"} if last == "o" else ())]
            more += [stem + ending for stem in dict.fromkeys((single, doubled)) for ending in ("ed", "ing")]
        more += _plain_words().get(base, ())
        forms.update(dict.fromkeys(form for form in more if form not in _uninflected()))
    return list(forms)


@cache
def _uninflected() -> frozenset[str]:
    return frozenset(word_lists()["uninflected"].split())
