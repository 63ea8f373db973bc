"""From a question to what the legs look for: terms, pairs of CJK characters, file names, days.

Every piece of a MATCH expression is either quoted here or a fixed operator, so no question, whatever is in
it, can be a syntax error of FTS5 or reach a column it should not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shared.search.words import stop_words
from shared.sources.tokens import dense_run, has_dense
from shared.values import value

if TYPE_CHECKING:
    from shared.search.dates import Day

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
    """One thing to find with the keyword leg."""

    #: As it stands in the question, lower case; for `--explain`.
    label: str
    #: MATCH expression.
    match: str
    #: MATCH expression to take when `match` finds nothing; empty when there is none.
    fallback: str = ""
    #: A plain word: it may have other forms and companions.
    is_word: bool = False


@value
class Question:
    """A question, taken apart."""

    #: What is embedded: the question without what no provider and no index can digest.
    text: str
    terms: tuple[Term, ...]
    #: What may be the name or the path of a file, as it stands in the question.
    names: tuple[str, ...]
    #: Whether the whole question is one of the `names`.
    is_name: bool
    days: tuple[Day, ...]


def analyse(raw: str) -> Question:
    """Take a question apart. Any string is fine; one without a letter or digit has no terms."""
    text = clean(raw)
    terms: dict[str, Term] = {}
    rest = _take_quoted(text, terms)
    rest = _take_compounds(rest, terms)
    _take_words(rest, terms, has_others=bool(terms))
    days = _days(text)
    for day in days:
        _add(terms, Term(label=day.iso, match=f"{{path heading}} : {quoted(day.iso)}"))
    whole = text.strip(" \"'?!.")
    is_name = 0 < len(whole) <= 200 and len(whole.split()) <= MAX_NAME_WORDS
    names = [whole] if is_name else []
    names += (found[0] for found in _COMPOUND.finditer(text) if "/" in found[0] or len(found[0]) > 3)
    names += (day.iso for day in days if day.year)
    return Question(
        text=text,
        terms=tuple(terms.values())[:MAX_CANDIDATES],
        names=tuple(dict.fromkeys(names))[:8],
        is_name=is_name,
        days=days,
    )


def _days(text: str) -> tuple[Day, ...]:
    # Most questions have no digit, and the module behind this costs 5 ms.
    if not any(map(str.isdigit, text)):
        return ()
    from shared.search.dates import days_in

    return days_in(text)


def clean(raw: str) -> str:
    """`raw` without control characters and lone surrogates, composed, and at most MAX_CHARS long."""
    text = raw[:MAX_CHARS]
    if not text.isascii():
        from unicodedata import normalize

        text = normalize("NFC", re.sub("[\ud800-\udfff]", " ", text))
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).strip()


def quoted(text: str) -> str:
    """`text` as one FTS5 string: a phrase of the tokens in it, never an operator."""
    return '"' + text.replace('"', '""') + '"'


def any_of(matches: Iterable[str]) -> str:
    """A MATCH expression for rows that match at least one of `matches`."""
    return " OR ".join(matches)


def _take_quoted(text: str, terms: dict[str, Term]) -> str:
    for found in _QUOTED.finditer(text):
        phrase = next(filter(None, found.groups()))
        if has_dense(phrase):
            continue
        pieces = _PIECE.findall(phrase.lower())
        if pieces:
            _add(terms, _phrase(phrase.lower(), pieces))
    return _QUOTED.sub(lambda found: found[0] if has_dense(found[0]) else " ", text)


def _take_compounds(text: str, terms: dict[str, Term]) -> str:
    def take(found: re.Match[str]) -> str:
        compound = found[0].lower()
        pieces = _PIECE.findall(compound)
        if not pieces or has_dense(compound):
            return found[0].replace("_", " ")
        letters = all(piece.isalpha() for piece in pieces) and "_" not in compound
        # `high-speed` is two words: as a phrase on top of them it lost 0.01 on technical abstracts.
        if not letters or compound.replace("-", "") != "".join(pieces):
            _add(terms, _phrase(compound, pieces))
        # The parts of `src/app.py` are words as well; those of `v1.5.2` or `ERR_CONN_42` are noise, and so
        # is the `md` that every note ends with.
        return found[0].removesuffix(".md") if letters else " "

    return _COMPOUND.sub(take, text)


def _phrase(label: str, pieces: list[str]) -> Term:
    parts = [quoted(piece) for piece in dict.fromkeys(pieces) if len(piece) > 1]
    fallback = f"({any_of(parts[:8])})" if parts and len(pieces) > 1 else ""
    return Term(label=label, match=quoted(" ".join(pieces)), fallback=fallback)


def _take_words(text: str, terms: dict[str, Term], *, has_others: bool) -> None:
    words: list[str] = []
    for found in _WORD.findall(text.casefold() if not text.isascii() else text.lower()):
        if has_dense(found):
            for run in dense_run().findall(found):
                _take_dense(run, terms)
            found = dense_run().sub(" ", found)
        words += (piece for piece in found.split() if piece.strip("_"))
    stop = stop_words(words)
    content = [word for word in words if word not in stop]
    if not content and not has_others and not terms:
        content = words
    for word in content:
        fallback = f"{quoted(word)} *" if len(word) >= 4 else ""
        _add(terms, Term(label=word, match=quoted(word), fallback=fallback, is_word=True))


def _take_dense(run: str, terms: dict[str, Term]) -> None:
    if len(run) == 1:
        _add(terms, Term(label=run, match=f"{{grams}} : {quoted(run)} *"))
    for start in range(len(run) - 1):
        pair = run[start : start + 2]
        _add(terms, Term(label=pair, match=f"{{grams}} : {quoted(pair)}"))


def _add(terms: dict[str, Term], term: Term) -> None:
    terms.setdefault(term.match, term)
