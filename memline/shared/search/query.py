"""Take a question apart into what the retrievers look for: terms, pairs of CJK characters, names, days.

Every piece of a MATCH expression is either quoted here or a fixed operator, so no question, whatever is in
it, can be a syntax error of FTS5 or reach a column it should not.

Measured on questions over long conversations: dropping stop words is worth 0.01 of recall at six; irregular
forms and synonyms, at a third of the weight of the word itself, another 0.01 (at ten results as well).
Porter stemming, which SQLite does, joins `walk` and `walking` but not `buy` and `bought`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby, pairwise
from unicodedata import normalize

from memline.shared.search.dates import days_in
from memline.shared.sources.folding import fold
from memline.shared.sources.tokens import dense_run, has_dense
from memline.shared.values import replace, value
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
_VERSION = re.compile(r"(v?)\d+\.\d", re.I)
_E_MAIL = re.compile(r"\b(e)-(mail)", re.I)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_QUANTITY = re.compile(r"\d{1,4}|\d+[a-z]{1,3}")
#: `db.prod.yml` does not hold `prod.yml`'s namesake `prod.yml.bak`, nor `v1.5.2` the older `v1.5`.
_BEFORE_ID = r"(?<!\w)(?<!\w[.@-])"
_AFTER_ID = r"(?!\w)(?![.@-]\w)"


@value
class Term:
    """One thing to find with the keyword retriever."""

    #: As written in the question, lower case; for `--explain`.
    label: str
    #: MATCH expression of one phrase.
    match: str
    #: The same in other spellings, which count as much: `18.3.0` for `v18.3.0`.
    spellings: tuple[str, ...] = ()
    #: What may stand for it when it is nowhere: its pieces, or the words that it is the beginning of.
    fallbacks: tuple[str, ...] = ()
    #: A plain word: it may have other forms and synonyms.
    is_word: bool = False
    #: An id, a version, a file name or a quoted phrase: what holds it comes before what does not.
    is_exact: bool = False
    #: How an id is spelled: its tokens in a row are not it. None when the tokens are enough.
    literal: re.Pattern[str] | None = None
    #: As typed, to say that it is nowhere; of a run of CJK characters each pair has the run. Empty for what
    #: was not typed like that: pieces of an id, days.
    typed: str = ""

    @property
    def is_asked(self) -> bool:
        """Say whether an answer must hold it; a day in words is only a hint to where it may stand."""
        return bool(self.typed) or self.is_word


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
    original = clean(raw)
    text = fold(original)
    terms: dict[str, Term] = {}
    # `e-mail` is searched as `email` is, and that in both spellings.
    rest = _take_quoted(_E_MAIL.sub(r"\1\2", text), terms)
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
    found = tuple(terms.values())[:MAX_CANDIDATES]
    if text != original:
        found = _as_typed(found, original)
    return Question(
        text=original,
        terms=found,
        names=tuple(dict.fromkeys(names))[:8],
        is_name=is_name,
    )


def _as_typed(terms: Iterable[Term], original: str) -> tuple[Term, ...]:
    """Name the words in `terms` as they stand in the question that was not folded yet."""
    spelled = {fold(each): each for each in (*original.split(), *_WORD.findall(original))}
    return tuple(replace(term, typed=spelled.get(term.typed, term.typed)) for term in terms)


def as_typed(missing: Iterable[Term], terms: Sequence[Term]) -> tuple[str, ...]:
    """Write what is missing as it was typed; of a run of CJK characters the part that is nowhere."""
    absent = {id(term) for term in missing}
    names: dict[str, None] = {}
    for is_absent, group in groupby(terms, key=lambda term: (id(term) in absent, term.typed)):
        run = list(group)
        if not is_absent[0] or not is_absent[1]:
            continue
        if not run[0].match.startswith("{grams}"):
            names[run[0].typed] = None
        elif len(run) > 1 or len(run[0].typed) <= 2:
            # One pair alone may only be where two words meet.
            names[run[0].label + "".join(term.label[-1] for term in run[1:])] = None
    return tuple(names)


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


def _take_quoted(text: str, terms: dict[str, Term]) -> str:
    for match in _QUOTED.finditer(text):
        phrase = next(filter(None, match.groups()))
        if has_dense(phrase):
            continue
        pieces = _PIECE.findall(phrase.lower())
        if pieces:
            _add(terms, _phrase(phrase, pieces, is_exact=True))
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
            _add(terms, _compound(match[0], pieces))
        # The parts of `src/app.py` are words as well; those of `v1.5.2` or `ERR_CONN_42` are noise, and so
        # is the `md` that every note ends with.
        return match[0].removesuffix(".md") if letters else " "

    return _COMPOUND.sub(take, text)


def _phrase(
    typed: str,
    pieces: list[str],
    *,
    spellings: tuple[str, ...] = (),
    is_exact: bool = False,
    literal: re.Pattern[str] | None = None,
) -> Term:
    parts = [quoted(piece) for piece in dict.fromkeys(pieces) if len(piece) > 1]
    return Term(
        label=typed.lower(),
        match=quoted(" ".join(pieces)),
        spellings=spellings,
        fallbacks=tuple(parts[:8]) if len(pieces) > 1 else (),
        is_exact=is_exact,
        literal=literal,
        typed=typed,
    )


def _compound(typed: str, pieces: list[str]) -> Term:
    """Make the term of an id, a version, a date, a path, or of words that are joined like one."""
    spellings: tuple[str, ...] = ()
    if version := _VERSION.match(typed):
        # With the letter v or without it.
        other = pieces[0][1:] if version[1] else f"v{pieces[0]}"
        spellings = (quoted(" ".join([other, *pieces[1:]])),)
    literal = None
    is_exact = _is_id(typed, pieces)
    if is_exact and not _DATE.fullmatch(typed):
        spelled = re.escape(typed[len(version[1]) :] if version else typed.strip("./~"))
        literal = re.compile(f"{_BEFORE_ID}{'v?' if version else ''}{spelled}{_AFTER_ID}", re.I)
    return _phrase(typed, pieces, spellings=spellings, is_exact=is_exact, literal=literal)


def _is_id(typed: str, pieces: list[str]) -> bool:
    """Tell an id from words with a mark between them: `and/or`, `Ph.D`, `1/2`."""
    if "_" in typed or "@" in typed:
        return True
    if not all(piece.isalpha() for piece in pieces):
        return len(typed) >= 4
    is_dotted = "." in typed.strip(".") and len(typed) >= 6 and max(map(len, pieces)) >= 3
    return is_dotted or (len(pieces) > 2 and typed.count("-") < len(pieces) - 1)


def _is_code(word: str) -> bool:
    """Tell whether a word is an id: a hash, `E4021`, a long number; not `90s`, `10am` or `1st`."""
    if word.isalpha() or not word.isalnum():
        return False
    return len(word) >= 5 and not _QUANTITY.fullmatch(word)


def _take_words(text: str, terms: dict[str, Term]) -> None:
    #: Of a compound that is a term the pieces are found, and not said to be nowhere.
    pieces = {piece for term in terms.values() for piece in _PIECE.findall(term.label)}
    #: Lower case -> as typed.
    words: dict[str, str] = {}
    seen: list[str] = []
    for match in _WORD.finditer(text):
        typed, word = match[0], match[0].casefold()
        if has_dense(word):
            for run in dense_run().findall(word):
                # A character on its own begins a pair of the text.
                pairs = [f"{first}{second}" for first, second in pairwise(run)]
                for label in pairs or [run]:
                    ending = "" if pairs else " *"
                    _add(terms, Term(label=label, match=f"{{grams}} : {quoted(label)}{ending}", typed=run))
            word = typed = dense_run().sub(" ", word)
        for piece in word.split():
            if piece.strip("_"):
                seen.append(piece)
                words.setdefault(piece, typed if piece == word else piece)
    stop = stop_words(seen)
    content = [word for word in words if word not in stop]
    if not content and not terms:
        content = list(words)
    for word in content:
        term = Term(
            label=word,
            match=quoted(word),
            spellings=(quoted(f"e {word[1:]}"),) if word.startswith("email") else (),
            fallbacks=(f"{quoted(word)} *",) if len(word) >= 4 else (),
            is_word=True,
            is_exact=_is_code(word),
            typed="" if word in pieces else words[word],
        )
        _add(terms, term)


def _add(terms: dict[str, Term], term: Term) -> None:
    terms.setdefault(term.match, term)
