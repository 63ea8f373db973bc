"""Take a question apart into what the retrievers look for: terms, pairs of CJK characters, names, days.

Every piece of a MATCH expression is either quoted here or a fixed operator, so no question, whatever is in
it, can be a syntax error of FTS5 or reach a column it should not.

Measured on questions over long conversations: dropping stop words is worth 0.01 of recall at six.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from functools import cache
from itertools import groupby, pairwise
from unicodedata import normalize

from memline.shared.note_names import without_ending
from memline.shared.patterns import late
from memline.shared.search.word_forms import MOST_LETTERS, synonyms_of_two
from memline.shared.sources.dates import Days, days_in, start_with_fillers
from memline.shared.sources.folding import fold
from memline.shared.sources.tags import asked_tags
from memline.shared.sources.tokens import dense_run, emoji_run, grams, has_dense
from memline.shared.values import replace, value
from memline.shared.words import FOREIGN, is_question, language_of, light_words, stop_words_of, word_lists

#: Characters of a question that are looked at: more is a pasted document, not a question.
MAX_CHARS = 4_000

#: Distinct terms that are kept for the choice of the rarest.
MAX_CANDIDATES = 64

#: Stop words that end a compound.
_PARTICLES = frozenset(("in", "out", "on", "off", "up", "down", "over"))

#: Characters of a question in which titles and lines are looked for.
SHORT_CHARS = 1_000

#: Words of a question among which titles are looked for, and what may stand around one of them.
RUN_WORDS, _AROUND = 24, " \"'?!.,:;()`"

#: Words of a question that is also looked for as it stands, a line that was copied: fewer stand together by
#: chance, more are found by themselves.
LINE_WORDS = range(3, 9)

#: Words in a question that may as a whole be the name of a file.
MAX_NAME_WORDS = 6

_QUOTED = late('"([^"]+)"|“([^”]+)”|«([^»]+)»|「([^」]+)」')
#: Ids, versions, dates, paths, names with an underscore: pieces joined by one of these characters.
#: Begun only where a word or a path begins, and never taken back: 4,000 letters in a row took half a second.
_COMPOUND = late(r"(?:(?<![./~])[./~]++|(?<!\w))\w++(?:[-./:@#+\\]++\w++)+|(?<!\w)[^\W_]*+_\w*+")
#: Combining marks are part of a word: FTS5 makes of it what it made of the text.
_WORD = late(r"[\w\u0300-\u036f\u0900-\u0dff\u200c\u200d]+")
_PIECE = late(r"[^\W_]+")
_VERSION = late(r"(v?)\d+\.\d", re.I)
#: Names of code: `--option`, `@types/node`, `.env`, `std::vector`, `src/*.ts`, `foo()`, `C++`, `50%`.
_CODE = late(
    r"(?<!\S)[(\[{'`]*+((?:--?[^\W\d]|(?:~/)?[@.$]\w|\*\*\w)[^\s,;!?'`)]*+"
    r"|[^\s,;!?'`]*?(?:\w::|[./]\*|\*[./])[^\s,;!?'`]*+|[^\W\d_]{1,4}&[^\W\d_]{1,4}"
    r"|\w[^\s,;!?'`()]*+\(\)|\w[\w.]*+(?:\+\+\w*+|[#%]))(?=[.,;:!?)\]}'`]*+(?!\S))"
)
_CAMEL_CASE = late("[a-z]{2,}[A-Z]+[a-z]")
#: `e-mail` is searched as `email` is, and `x-ray` as `xray`, and these in both spellings.
_INITIAL = late(r"(?<![\w-])([b-hj-z])-(?=[a-z]{3,}(?![\w-]))", re.I)
#: A number with what it counts: `2-factor`.
_COUNTED = late(r"\d{1,2}(?:-[^\W\d_]+)+")
_DATE, _DOTTED = late(r"\d{4}-\d{2}-\d{2}"), late(r"\d{1,2}\.\d{1,2}\.\d{4}")
_QUANTITY = late(r"\d{1,4}|\d+[a-z]{1,3}")
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
    #: The same in other spellings, which count as much: `18.3.0` for `v18.3.0`, `checklist` for `check list`.
    spellings: tuple[str, ...] = ()
    #: Those that are looked for unless the word is common: `check list` for `checklist`.
    halves: tuple[str, ...] = ()
    #: What may stand for it when it is nowhere: its pieces, or the words that it is the beginning of.
    fallbacks: tuple[str, ...] = ()
    #: What finds words for the same as a verb of two: `reset` for `start over`.
    synonyms: tuple[str, ...] = ()
    #: A plain word: it may have other forms and synonyms, in the language of the question (`language_of`).
    is_word: bool = False
    language: str = "en"
    #: An id, a version, a file name or a quoted phrase: what holds it comes before what does not.
    is_exact: bool = False
    #: How an id is spelled: its tokens in a row are not it. None when the tokens are enough.
    literal: re.Pattern[str] | None = None
    #: The figures of a day that the question names.
    is_day: bool = False
    #: As typed, to say that it is nowhere; of a run of CJK characters each pair has the run. Empty for what
    #: was not typed like that: pieces of an id, days.
    typed: str = ""

    @property
    def is_asked(self) -> bool:
        """Say whether an answer must hold it; a day in words is only a hint to where it may stand."""
        return bool(self.typed) or self.is_word

    @property
    def in_grams(self) -> bool:
        """Say whether it is no word: CJK characters or an emoji. Of a path only the name document has it."""
        return self.match.startswith(("{grams}", "grams"))

    @property
    def is_pair(self) -> bool:
        """Say whether it is two CJK characters."""
        return self.match.startswith("{grams}")


@value
class Question:
    """A question, taken apart."""

    #: What is embedded: the question without what no provider and no index can digest.
    text: str
    terms: tuple[Term, ...]
    #: What may be the name or the path of a file, as written in the question.
    names: tuple[str, ...]
    #: How many of the `names`, the first ones, are the whole question.
    wholes: int
    #: Words of it that follow each other, which may be a title.
    runs: tuple[str, ...] = ()
    #: MATCH expression of all of it, word for word in a text; empty where it has too few words or too many.
    line: str = ""
    #: The days that it names: notes of these days are lifted.
    days: tuple[Days, ...] = ()
    #: The tags that it names: notes with one come first.
    tags: tuple[str, ...] = ()
    #: Its words that say nothing of what is asked: those of a question that are not looked for, and of days.
    light: tuple[str, ...] = ()


def analyse(raw: str, today: date | None = None) -> Question:
    """Take a question apart. Any string is fine; one without a letter or digit has no terms.

    `today` is that of who asks; without it no words are read as days.
    """
    original = clean(raw)
    text, tags = asked_tags(fold(original))
    terms: dict[str, Term] = {}
    # Letters, figures and blanks hold no quotes, ids and code, whose patterns take a millisecond to compile.
    is_plain = text.replace(" ", "").isalnum()
    unquoted = text if is_plain else _QUOTED.sub(lambda match: " " * len(match[0]), text)
    days = days_in(unquoted, today) if today else ()
    named = [text[each.begin : each.end] for each in days]
    # 2026-03-14 is an id, and 14.3.2026 is none.
    spoken = [words for words in named if any(map(str.isalpha, words))]
    in_figures = [words for words in named if _DOTTED.fullmatch(words)]
    asked = text
    for each in reversed(days):
        if text[each.begin : each.end] in (*spoken, *in_figures):
            asked = f"{asked[: start_with_fillers(text, each.begin)]} {asked[each.end :]}"
    rest = asked
    if not is_plain:
        rest = _take_compounds(_take_code(_take_quoted(_INITIAL.sub(r"\1", asked), terms), terms), terms)
    # The pieces of a day are those of others.
    of_days = {key: term for key, term in terms.items() if term.label in named}
    terms |= {key: replace(term, is_day=True, fallbacks=()) for key, term in of_days.items()}
    light = _take_words(rest, terms, is_enough=bool(spoken or in_figures), asks=is_question(original))
    # An answer need not have the words of a day. Without them conversations lost 0.002 of recall.
    hints: dict[str, Term] = {}
    _take_words(" ".join(spoken), hints)
    for term in hints.values():
        _add(terms, replace(term, typed="", is_word=False))
    exact = [each for each in days if each.first == each.last and not each.is_relative]
    for each in exact:
        day = str(each) if each.has_year else f"{each.first:%m-%d}"
        match, typed = f"{{path heading}} : {quoted(day)}", text[each.begin : each.end]
        spellings = (quoted(typed),) if typed in in_figures else ()
        _add(terms, Term(label=day, match=match, spellings=spellings, fallbacks=(quoted(str(each.first)),)))
    whole = text.strip(" \"'?!.")
    is_name = 0 < len(whole) <= 200 and len(whole.split()) <= MAX_NAME_WORDS
    is_short = len(whole) <= SHORT_CHARS
    is_line = is_short and '"' not in text and not (tags or spoken or in_figures)
    is_line = is_line and len(_WORD.findall(whole)) in LINE_WORDS
    # A title may end with a mark that is typed or left out: `What's new?`.
    names = [*dict.fromkeys((whole, text.strip(), f"{whole}?"))] if is_name else []
    wholes = len(names)
    if not is_plain:
        names += (match[0] for match in _COMPOUND.finditer(text) if "/" in match[0] or len(match[0]) > 3)
    names += (str(each) for each in exact if each.has_year)
    found = tuple(terms.values())[:MAX_CANDIDATES]
    found = _as_typed(found, original) if text != original else found
    return Question(
        text=original,
        terms=found,
        names=tuple(dict.fromkeys(names))[:8],
        wholes=wholes,
        runs=_runs(whole) if is_short else (),
        line=f"{{text}} : {quoted(whole)}" if is_line else "",
        days=days,
        tags=tags,
        light=(*light, *_WORD.findall(" ".join(named).lower())),
    )


def _runs(whole: str) -> tuple[str, ...]:
    """List runs of two words or more, and names of code; another word is rather what is said of a page."""
    words = [stripped for word in whole.split()[:RUN_WORDS] if (stripped := word.strip(_AROUND))]
    sizes = range(1, min(len(words), MAX_NAME_WORDS + 1))
    runs = [words[at : at + size] for size in sizes for at in range(len(words) - size + 1)]
    return tuple(" ".join(run) for run in runs if len(run) > 1 or _CAMEL_CASE.match(run[0]))


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
        if not run[0].is_pair:
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
    return text.strip() if text.isprintable() else re.sub(r"[\x00-\x1f\x7f]+", " ", text).strip()


def quoted(text: str) -> str:
    """Write `text` as one FTS5 string: a phrase of the tokens in it, never an operator."""
    return '"' + text.replace('"', '""') + '"'


def any_of(matches: Iterable[str]) -> str:
    """Write a MATCH expression for rows that match at least one of `matches`."""
    return " OR ".join(matches)


def _take_quoted(text: str, terms: dict[str, Term]) -> str:
    for match in _QUOTED.finditer(text):
        phrase = next(filter(None, match.groups()))
        if has_dense(phrase):
            continue
        pieces = _PIECE.findall(phrase.lower())
        if pieces:
            _add(terms, _phrase(phrase, pieces, is_exact=True))
    return _QUOTED.sub(lambda match: match[0] if has_dense(match[0]) else " ", text)


def _take_code(text: str, terms: dict[str, Term]) -> str:
    if not text.isascii():
        for emoji in emoji_run().findall(text):
            match = f"grams : {quoted(grams(emoji))}"
            literal = re.compile(re.escape(emoji.strip("\ufe0f")))
            _add(terms, Term(label=emoji, match=match, is_exact=True, literal=literal, typed=emoji))
        text = emoji_run().sub(" ", text)

    def take(match: re.Match[str]) -> str:
        # Not dots and asterisks alone.
        pieces = _PIECE.findall(match[1].lower())
        if not pieces or has_dense(match[1]):
            return match[0]
        typed = match[1].rstrip(".:")
        # The name of an option is asked for as well, with whatever value it has.
        for name in dict.fromkeys((typed, typed.partition("=")[0])):
            after = _AFTER_ID if name[-1].isalnum() else r"(?!\w)"
            # A package may stand with its version.
            after = after.replace("@", "") if name.startswith("@") else after
            spelled = re.escape(name).replace("%", " ?%")
            literal = re.compile(f"{_BEFORE_ID}{spelled}{after}", re.I)
            _add(terms, _phrase(name, _PIECE.findall(name.lower()), is_exact=True, literal=literal))
        return " "

    return _CODE.sub(take, text)


def _take_compounds(text: str, terms: dict[str, Term]) -> str:
    def take(match: re.Match[str]) -> str:
        compound = match[0].lower()
        pieces = _PIECE.findall(compound)
        if not pieces or has_dense(compound):
            return match[0].replace("_", " ")
        letters = all(piece.isalpha() for piece in pieces) and "_" not in compound
        if _COUNTED.fullmatch(compound):
            return match[0]
        # `high-speed` is two words: as a phrase on top of them it lost 0.01 on technical abstracts.
        if not letters or compound.replace("-", "") != "".join(pieces):
            _add(terms, _compound(match[0], pieces))
        # The parts of `src/app.py` are words as well; those of `v1.5.2` or `ERR_CONN_42` are noise, and so
        # is the `md` that every note ends with.
        return without_ending(match[0]) if letters else " "

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


def _take_words(
    text: str, terms: dict[str, Term], *, is_enough: bool = False, asks: bool = False
) -> tuple[str, ...]:
    """Make terms of the words of a text; of its stop words where it has no others, unless it `is_enough`.

    `asks`: it is a question. Returns the light words that are left out of one.
    """
    #: Of a compound that is a term the pieces are found, and not said to be nowhere.
    pieces = {piece for term in terms.values() for piece in _PIECE.findall(term.label)}
    #: Lower case -> as typed.
    words: dict[str, str] = {}
    seen: list[str] = []
    #: Words with one blank or hyphen between them.
    neighbours: list[tuple[str, str]] = []
    end = 0
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
                if seen and text[end : match.start()] in (" ", "-") and (seen[-1] + piece).isalpha():
                    neighbours.append((seen[-1], piece))
                end = match.end()
                seen.append(piece)
                words.setdefault(piece, typed if piece == word else piece)
    stop = stop_words_of((language := language_of(seen)) or "en")
    joined = [pair for pair in neighbours if _are_one(*pair, stop)]
    content = [word for word in words if word not in stop]
    if not content and not terms and not is_enough:
        content = list(words)
    light = light_words([words[word] for word in content] if asks and language not in FOREIGN else [])
    for word in (each for each in content if each not in light):
        term = Term(
            label=word,
            match=quoted(word),
            spellings=tuple(
                quoted(each)
                for each in (*_figures().get(word, ()), *("".join(pair) for pair in joined if word in pair))
            ),
            halves=tuple(_halves(word, stop)),
            fallbacks=(f"{quoted(word)} *",) if len(word) >= 4 else (),
            is_word=True,
            language=language,
            is_exact=_is_code(word),
            typed="" if word in pieces else words[word],
        )
        _add(terms, term)
    for first, second in neighbours:
        synonyms = tuple(map(quoted, synonyms_of_two(first, second)))
        if synonyms or (second in _PARTICLES and _are_one(first, second, stop)):
            # Where notes have `login`, `logs` is not what `log in` asks for.
            two, one = f"{first} {second}", quoted(f"{first}{second}")
            _add(terms, Term(label=two, match=one, halves=(quoted(two),), synonyms=synonyms))
    return light


def _are_one(first: str, second: str, stop: Collection[str]) -> bool:
    """Tell whether two words may be written as one: `flash cards`, `log in`, and not `a part`."""
    return first not in stop and len(second) > 1 and (second not in stop or second in _PARTICLES)


def _halves(word: str, stop: Collection[str]) -> Iterator[str]:
    """Yield the phrases of two words that may be meant by one."""
    if word.isalpha() and word.isascii() and len(word) < MOST_LETTERS:
        for at in range(1, len(word) - 1):
            if _are_one(word[:at], word[at:], stop):
                yield quoted(f"{word[:at]} {word[at:]}")


@cache
def _figures() -> dict[str, tuple[str, ...]]:
    """Return the figures of numbers in words, and the words of figures."""
    pairs = [pair.split() for pair in word_lists()["numbers"].split("|")]
    return {one: (other,) for pair in pairs for one, other in (pair, pair[::-1])}


def _add(terms: dict[str, Term], term: Term) -> None:
    # `C++` and `C#` have the same tokens.
    terms.setdefault(term.label if term.literal else term.match, term)
