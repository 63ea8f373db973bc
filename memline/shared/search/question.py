"""Take a question apart into terms, names, days and tags.

Every piece of a MATCH expression is quoted here or a fixed operator, so no question can be a syntax error of
FTS5. What a term stands for in other forms is in `terms.py`.
"""

import re
from collections.abc import Iterable
from datetime import date
from itertools import pairwise
from typing import Literal
from unicodedata import normalize

from msgspec import Struct

from memline.shared.note_names import fold, without_ending
from memline.shared.sources.about import asked_tags
from memline.shared.sources.dates import Days, days_in, start_with_fillers
from memline.shared.sources.tokens import dense_run, has_dense
from memline.shared.words import is_question, language_of, light_words, stop_words_of, words_of_days

#: Characters of a question that are read, and terms that are made of it: more is a pasted document. The
#: scorer takes the rarest of them.
MAX_CHARS, MAX_TERMS = 4_000, 64

#: Words of a question that is also searched as one phrase: fewer stand together by chance. Words and
#: characters of the longest question that is looked for as a name.
PHRASE_WORDS, NAME_WORDS, NAME_CHARS = range(3, 9), 12, 200

_QUOTED = re.compile('"([^"]+)"|“([^”]+)”|«([^»]+)»|「([^」]+)」')
#: Ids, versions, dates, paths, names of code: pieces joined by one of these marks.
#: Possessive: 4,000 letters in a row took half a second.
_COMPOUND = re.compile(r"(?:(?<![./~@-])[./~@-]++|(?<!\w))\w++(?:[-./:@#+\\]++\w++)+|(?<!\w)[^\W_]*+_\w*+")
#: Combining marks are part of a word: FTS5 made of it what it made of the text.
_WORD = re.compile(r"[\w\u0300-\u036f\u0900-\u0dff\u200c\u200d]+")
_PIECE = re.compile(r"[^\W_]+")
#: Marks that join words to a name of code, a path, an address.
_JOINED = r"[.:@#+\\]\w|/.*/"
_VERSION = r"(?i)(v?)\d+\.\d"
#: `2-factor` is a number with what it counts, `90s` and `10am` are quantities: none of them is an id.
_COUNTED, _QUANTITY = r"\d{1,2}(?:-[^\W\d_]{3,})+", r"\d{1,4}|\d+[a-z]{1,3}"
#: A word and a number beside each other.
_BESIDE = r"\b([^\W\d_]+(?= \d)|\d+(?= [^\W\d_])) (?=([^\W_]+)\b)"

Kind = Literal["word", "id", "day", "phrase", "part"]


class Term(Struct, frozen=True):
    """One thing to find."""

    #: As written in the question, lower case.
    label: str
    #: MATCH expression of its looks, which weigh the same: `utf 8` and `utf8`, `18.3.0` and `v18.3.0`.
    match: str
    #: Phrases that stand in where no chunk has it: its pieces, the words that it begins.
    fallbacks: tuple[str, ...] = ()
    #: `id`: an id or a quoted phrase. `day` counts in chunks that have another term. `phrase`: the whole
    #: question. `part`: a pair of CJK characters, or pieces that are words as well.
    kind: Kind = "part"
    #: As typed, for the list of missing words; empty for what was not typed like that.
    typed: str = ""


class Question(Struct, frozen=True, kw_only=True):
    """A question, taken apart."""

    #: What is embedded.
    text: str
    terms: tuple[Term, ...]
    #: All of it without the marks around it, where it may be a name.
    whole: str = ""
    days: tuple[Days, ...] = ()
    #: Whether nothing but days is asked for.
    is_day_alone: bool = False
    tags: tuple[str, ...] = ()
    #: Words that are left out, and those of days.
    light: tuple[str, ...] = ()


def analyse(raw: str, today: date | None = None) -> Question:
    """Take a question apart; without a letter or digit it has no terms, without `today` no days."""
    original = re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]+", " ", normalize("NFC", raw[:MAX_CHARS])).strip()
    text, tags = asked_tags(fold(original))
    days = days_in(_QUOTED.sub(lambda match: " " * len(match[0]), text), today) if today else ()
    rest = text
    for each in reversed(days):
        rest = f"{rest[: start_with_fillers(text, each.begin)]} {rest[each.end :]}"
    terms = _Terms()
    light = terms.take_words(terms.take_marked(rest), is_enough=bool(days), asks=is_question(original))
    asked = [term.label for term in terms.of.values() if term.typed]
    is_day_alone = bool(days) and words_of_days().issuperset(asked)
    if is_day_alone:
        terms.of.clear()
        light = (*light, *asked)
    said = [text[each.begin : each.end] for each in days]
    terms.take_days(days, said, is_day_alone=is_day_alone)
    whole = text.strip(" \"'?!.")
    if len(_WORD.findall(whole)) in PHRASE_WORDS and '"' not in text and not (tags or days):
        terms.add(whole, quoted(whole), kind="phrase")
    return Question(
        text=original,
        terms=tuple(terms.of.values())[:MAX_TERMS],
        whole=whole if len(whole.split()) <= NAME_WORDS and len(whole) <= NAME_CHARS else "",
        days=days,
        is_day_alone=is_day_alone,
        tags=tags,
        light=(*light, *_WORD.findall(" ".join(said).lower())),
    )


def quoted(text: str) -> str:
    """Write `text` as one FTS5 string: a phrase of the tokens in it, never an operator."""
    return '"' + text.replace('"', '""') + '"'


def any_of(phrases: Iterable[str]) -> str:
    """Write the MATCH expression of what has one of some phrases or more."""
    return " OR ".join(dict.fromkeys(phrases))


class _Terms:
    """The terms of a text, by what finds them."""

    def __init__(self) -> None:
        self.of: dict[str, Term] = {}

    def add(self, label: str, match: str, *fallbacks: str, kind: Kind = "part", typed: str = "") -> None:
        self.of.setdefault(match, Term(label, match, fallbacks, kind, typed))

    def take_days(self, days: Iterable[Days], said: list[str], *, is_day_alone: bool) -> None:
        """Make terms of days: their words, without which conversations lose .01, and their figures."""
        hints = [] if is_day_alone else _WORD.findall(" ".join(said).lower())
        for word in (word for word in hints if word not in stop_words_of("en")):
            self.add(word, quoted(word), kind="day")
        for each, typed in zip(days, said, strict=True):
            if each.first == each.last and not each.is_relative:
                figures = "" if any(map(str.isalpha, typed)) else typed
                day = str(each) if each.has_year else f"{each.first:%m-%d}"
                looks = any_of(quoted(other) for other in (day, figures, day.replace("-", "")) if other)
                self.add(day, looks, kind="part" if is_day_alone else "day", typed=figures)

    def take_marked(self, text: str) -> str:
        """Make terms of quotes and compounds, and return the rest."""
        text = _QUOTED.sub(self._take_quote, text)
        return _COMPOUND.sub(self._take_compound, dense_run().sub(lambda run: f" {run[0]} ", text))

    def _take_quote(self, match: re.Match[str]) -> str:
        phrase = str(next(filter(None, match.groups())))
        pieces = _PIECE.findall(phrase.lower())
        if has_dense(phrase) or not pieces:
            return phrase
        self._add_phrase(phrase, pieces, kind="id")
        return " "

    def _take_compound(self, match: re.Match[str]) -> str:
        typed, pieces = match[0], _PIECE.findall(match[0].lower())
        if not pieces or re.fullmatch(_COUNTED, typed):
            return typed
        is_of_words = all(map(str.isalpha, pieces)) and "_" not in typed
        # `high-speed` and `and/or` are two words: as a phrase on top of them they lost 0.01 on abstracts.
        is_id = len(typed) >= 6 and re.search(_JOINED, typed) if is_of_words else len(typed) >= 4
        # `e-mail` is also `email`.
        is_initial = is_of_words and len(pieces[0]) == 1
        if is_id or is_initial or not is_of_words:
            looks = [quoted("".join(pieces))] if 1 < len(pieces) < 4 else []
            if version := re.match(_VERSION, typed):
                first = pieces[0][1:] if version[1] else f"v{pieces[0]}"
                looks.append(quoted(" ".join([first, *pieces[1:]])))
            self._add_phrase(typed, pieces, *looks, kind="id" if is_id else "part")
        # The parts of `src/app.py` are words as well; those of `v1.5.2` are noise, and so is the `md` that
        # every note ends with.
        return without_ending(typed) if is_of_words and not is_initial else " "

    def _add_phrase(self, typed: str, pieces: list[str], *looks: str, kind: Kind) -> None:
        parts = [quoted(piece) for piece in dict.fromkeys(pieces) if len(piece) > 1]
        match = any_of((quoted(" ".join(pieces)), *looks))
        self.add(typed.lower(), match, *parts[: 8 * (len(pieces) > 1)], kind=kind, typed=typed)

    def take_words(self, text: str, *, is_enough: bool, asks: bool) -> tuple[str, ...]:
        """Make terms of the words of a text; of its stop words where it has no others, unless it `is_enough`.

        `asks`: it is a question. Returns the light words that are left out of one.
        """
        #: Of a compound that is a term the pieces are found, and are not said to be missing.
        pieces = {piece for term in self.of.values() for piece in _PIECE.findall(term.label)}
        #: Lower case -> as typed.
        plain = dense_run().sub(" ", text).replace("_", " ")
        words = {word.casefold(): word for word in _WORD.findall(plain)}
        for run in dense_run().findall(text):
            # A character on its own begins a pair of the text.
            pairs = [f"{first}{second}" for first, second in pairwise(run)]
            for label in pairs or [run]:
                self.add(label, f"{{grams}} : {quoted(label)}{'' if pairs else ' *'}", typed=run)
        language = language_of([*words])
        stop = stop_words_of(language or "en")
        content = [word for word in words if word not in stop] or ([] if self.of or is_enough else [*words])
        light = light_words([words[word] for word in content] if asks and language in ("en", "") else [])
        left_out = {*map(str.casefold, light)}
        #: `Python 3` is also `python3`.
        joined = [f"{first}{second}" for first, second in re.findall(_BESIDE, text.casefold())]
        for word in (word for word in content if word not in left_out):
            others = [quoted(each) for each in joined if each.startswith(word) or each.endswith(word)]
            beginning = [f"{quoted(word)} *"] if len(word) >= 4 else []
            is_id = not word.isalpha() and len(word) >= 5 and not re.fullmatch(_QUANTITY, word)
            looks = any_of((quoted(word), *_looks(word), *others))
            typed = "" if word in pieces else words[word]
            self.add(word, looks, *beginning, kind="id" if is_id else "word", typed=typed)
        return light


def _looks(word: str) -> tuple[str, ...]:
    """List other looks of a word: letters and figures that join and part, and an initial with its hyphen."""
    runs = re.findall(r"\d+|[^\W\d_]+", word)
    if word.isalpha() and len(word) > 4 and word[0] in "etx":
        runs = [word[0], word[1:]]
    return (quoted(" ".join(runs)),) if 1 < len(runs) < 5 else ()
