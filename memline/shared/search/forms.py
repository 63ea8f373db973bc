"""Know the forms of a word: plain inflections by rule, irregular forms and synonyms by list.

Porter stemming, which SQLite does, joins `walk` and `walking` but not `buy` and `bought`; and it joins
`import` and `important`. Irregular forms and synonyms, at a third of the weight of the word itself, are worth
0.01 of recall on conversations.
"""

from __future__ import annotations

import re
from functools import cache

from memline.shared.words import word_lists


def related(word: str) -> dict[str, bool]:
    """Return other forms and synonyms of a lower-case word, with whether it is a form; none for most."""
    groups = _related_words()
    for form in _bases(word):
        if form in groups:
            return {other: is_form for other, is_form in groups[form].items() if other != word}
    return {}


@cache
def _related_words() -> dict[str, dict[str, bool]]:
    table: dict[str, dict[str, bool]] = {}
    lists = word_lists()
    for section, is_form in (("forms", True), ("synonyms", False)):
        for group in lists[section].replace("\n", "|").split("|"):
            members = group.split()
            for member in members:
                others = table.setdefault(member, {})
                for other in members:
                    if other != member:
                        others.setdefault(other, is_form)
    return table


#: One vowel between consonants: `car` and `hop` double the last, `hope` and `care` lose their e.
_SHORT = re.compile("[^aeiouy]*[aeiouy][^aeiouywx]")
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
        return [word]
    for base in _bases(word):
        forms[base] = None
        if base in _uninflected():
            continue
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
        forms.update(dict.fromkeys(form for form in more if form not in _uninflected()))
    return list(forms)


@cache
def _uninflected() -> frozenset[str]:
    return frozenset(word_lists()["uninflected"].split())
