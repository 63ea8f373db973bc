"""Take a question apart into what the retrievers look for: terms, pairs of CJK characters, names, days.

Every piece of a MATCH expression is either quoted here or a fixed operator, so no question, whatever is in
it, can be a syntax error of FTS5 or reach a column it should not.

Measured on questions over long conversations: dropping stop words is worth 0.01 of recall at six; irregular
forms and synonyms, at a third of the weight of the word itself, another 0.01 (at ten results as well).
Porter stemming, which SQLite does, joins `walk` and `walking` but not `buy` and `bought`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from unicodedata import normalize

from memline.shared.search.dates import days_in
from memline.shared.sources.tokens import dense_run, has_dense
from memline.shared.values import value
from memline.shared.words import stop_words, word_lists

#: Characters of a question that are looked at: more is a pasted document, not a question.
MAX_CHARS = 4_000

#: Distinct terms that are kept for the choice of the rarest.
MAX_CANDIDATES = 64

#: Words in a question that may as a whole be the name of a file.
MAX_NAME_WORDS = 6

_QUOTED = re.compile('"([^"]+)"|“([^”]+)”|«([^»]+)»|「([^」]+)」')
#: Ids, versions, dates, paths, names with an underscore: pieces joined by one of these characters.
#: Begun only where a word or a path begins, and never taken back: 4,000 letters in a row took half a second.
_COMPOUND = re.compile(r"(?:(?<![./~])[./~]++|(?<!\w))\w++(?:[-./:@#+\\]++\w++)+|(?<!\w)[^\W_]*+_\w*+")
#: Combining marks are part of a word: FTS5 makes of it what it made of the text.
_WORD = re.compile(r"[\w\u0300-\u036f\u0900-\u0dff\u200c\u200d]+")
_PIECE = re.compile(r"[^\W_]+")


@value
class Term:
    """One thing to find with the keyword retriever."""

    #: As written in the question, lower case; for `--explain`.
    label: str
    #: MATCH expression.
    match: str
    #: MATCH expression to take when `match` finds nothing; empty when there is none.
    fallback: str = ""
    #: A plain word: it may have other forms and synonyms.
    is_word: bool = False


@value
class Question:
    """A question, taken apart."""

    #: What is embedded: the question without what no provider and no index can digest.
    text: str
    terms: tuple[Term, ...]
    #: What may be the name or the path of a file, as written in the question.
    names: tuple[str, ...]
    #: Whether the whole question is one of the `names`.
    is_name: bool


def analyse(raw: str) -> Question:
    """Take a question apart. Any string is fine; one without a letter or digit has no terms."""
    text = clean(raw)
    terms: dict[str, Term] = {}
    rest = _take_quoted(text, terms)
    rest = _take_compounds(rest, terms)
    _take_words(rest, terms)
    days = days_in(text)
    for day in days:
        _add(terms, Term(label=day, match=f"{{path heading}} : {quoted(day)}"))
    whole = text.strip(" \"'?!.")
    is_name = 0 < len(whole) <= 200 and len(whole.split()) <= MAX_NAME_WORDS
    names = [whole] if is_name else []
    names += (match[0] for match in _COMPOUND.finditer(text) if "/" in match[0] or len(match[0]) > 3)
    names += (day for day in days if len(day) > len("02-10"))
    return Question(
        text=text,
        terms=tuple(terms.values())[:MAX_CANDIDATES],
        names=tuple(dict.fromkeys(names))[:8],
        is_name=is_name,
    )


def clean(raw: str) -> str:
    """Compose `raw`, drop control characters and lone surrogates, and cut it to MAX_CHARS."""
    text = raw[:MAX_CHARS]
    if not text.isascii():
        text = normalize("NFC", re.sub("[\ud800-\udfff]", " ", text))
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).strip()


def quoted(text: str) -> str:
    """Write `text` as one FTS5 string: a phrase of the tokens in it, never an operator."""
    return '"' + text.replace('"', '""') + '"'


def any_of(matches: Iterable[str]) -> str:
    """Write a MATCH expression for rows that match at least one of `matches`."""
    return " OR ".join(matches)


def related(word: str) -> tuple[str, ...]:
    """Return other forms and synonyms of a lower-case word; none for most."""
    groups = _related_words()
    for form in _plain_forms(word):
        if form in groups:
            return tuple(other for other in groups[form] if other != word)
    return ()


@cache
def _related_words() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    lists = word_lists()
    for group in (lists["forms"] + "|" + lists["synonyms"]).replace("\n", "|").split("|"):
        members = group.split()
        for member in members:
            table.setdefault(member, {}).update(dict.fromkeys(members))
    return {word: tuple(other for other in others if other != word) for word, others in table.items()}


def _plain_forms(word: str) -> list[str]:
    """List `word` and what it may be an ordinary ending of: walks, walked, walking, making, studies."""
    forms = [word]
    if word.endswith("ies") and len(word) > 4:
        forms.append(word[:-3] + "y")
    for ending in ("ing", "ed", "es", "s"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 3:
            forms += [stem, stem + "e"]
            if stem[-1] == stem[-2]:
                forms.append(stem[:-1])
    return forms


def _take_quoted(text: str, terms: dict[str, Term]) -> str:
    for match in _QUOTED.finditer(text):
        phrase = next(filter(None, match.groups()))
        if has_dense(phrase):
            continue
        pieces = _PIECE.findall(phrase.lower())
        if pieces:
            _add(terms, _phrase(phrase.lower(), pieces))
    return _QUOTED.sub(lambda match: match[0] if has_dense(match[0]) else " ", text)


def _take_compounds(text: str, terms: dict[str, Term]) -> str:
    def take(match: re.Match[str]) -> str:
        compound = match[0].lower()
        pieces = _PIECE.findall(compound)
        if not pieces or has_dense(compound):
            return match[0].replace("_", " ")
        letters = all(piece.isalpha() for piece in pieces) and "_" not in compound
        # `high-speed` is two words: as a phrase on top of them it lost 0.01 on technical abstracts.
        if not letters or compound.replace("-", "") != "".join(pieces):
            _add(terms, _phrase(compound, pieces))
        # The parts of `src/app.py` are words as well; those of `v1.5.2` or `ERR_CONN_42` are noise, and so
        # is the `md` that every note ends with.
        return match[0].removesuffix(".md") if letters else " "

    return _COMPOUND.sub(take, text)


def _phrase(label: str, pieces: list[str]) -> Term:
    parts = [quoted(piece) for piece in dict.fromkeys(pieces) if len(piece) > 1]
    fallback = f"({any_of(parts[:8])})" if parts and len(pieces) > 1 else ""
    return Term(label=label, match=quoted(" ".join(pieces)), fallback=fallback)


def _take_words(text: str, terms: dict[str, Term]) -> None:
    words: list[str] = []
    for word in _WORD.findall(text.casefold() if not text.isascii() else text.lower()):
        if has_dense(word):
            for run in dense_run().findall(word):
                # A character on its own begins a pair of the text.
                pairs = [f"{first}{second}" for first, second in pairwise(run)]
                for label in pairs or [run]:
                    ending = "" if pairs else " *"
                    _add(terms, Term(label=label, match=f"{{grams}} : {quoted(label)}{ending}"))
            word = dense_run().sub(" ", word)
        words += (piece for piece in word.split() if piece.strip("_"))
    stop = stop_words(words)
    content = [word for word in words if word not in stop]
    if not content and not terms:
        content = words
    for word in content:
        fallback = f"{quoted(word)} *" if len(word) >= 4 else ""
        _add(terms, Term(label=word, match=quoted(word), fallback=fallback, is_word=True))


def _add(terms: dict[str, Term], term: Term) -> None:
    terms.setdefault(term.match, term)
