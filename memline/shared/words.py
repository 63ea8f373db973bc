"""Read the word lists (stop words by language, irregular forms), tell questions, say counts and citations."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

#: Languages whose stop words apply when a question has more of them than English ones: `die` and `war` are
#: content in English.
FOREIGN = ("de", "fr", "es", "pt", "it")

#: A question ends with its mark, or begins as one without it does: `what did we`, and not `What it does`.
_ASKED = re.compile(
    r"[?？؟][\s\"'”’»」)!.]*\Z"
    r"|\A(?:how (?:many|much|long|often|old)\b|wh(?:at|ich) (?:kind|sort|type)s? of\b"
    r"|(?:wh(?:o|at|en|ere)|how)['’]s\b"
    r"|(?:(?:who|what|when|where|why|which|how) )?(?:is|are|was|were|am|do|does|did|has|have|had"
    r"|can|could|will|would|should|shall) )",
    re.I,
)


def cite(path: str, first: int, last: int, *, column: int = 0) -> str:
    """Cite lines of a file: `path#L5-L7`, `path#L5` for a single one, `path#L5C12001` from a column on."""
    place = f"{path}#L{first}C{column}" if column else f"{path}#L{first}"
    return place + (f"-L{last}" if last > first else "")


def is_question(text: str) -> bool:
    """Tell a question, which asks for a fact, from a phrase that says what a note is about."""
    return bool(_ASKED.search(text))


def language_of(words: list[str]) -> str:
    """Return whose stop words are most of those among some lower-case words: `en`, or one of FOREIGN.

    Empty where none is among them.
    """
    in_english = sum(word in stop_words_of("en") for word in words)
    if not words or len(words) == in_english:
        return "en"
    counts = {language: sum(word in stop_words_of(language) for word in words) for language in FOREIGN}
    best = max(FOREIGN, key=lambda language: (counts[language], language))
    if counts[best] > max(1, in_english):
        return best
    return "en" if in_english else ""


@cache
def stop_words_of(language: str) -> frozenset[str]:
    """Return the stop words of `en` or of one of FOREIGN."""
    return frozenset(word_lists()[f"stop.{language}"].split())


def light_words(words: list[str]) -> tuple[str, ...]:
    """Choose the words of an English question, as typed, that say nothing there; it has no stop words.

    None where fewer than two others are left: `make` may be what is asked about. `Go` is a name.
    """
    known = word_lists()["light"].split()
    light = tuple(word for word in words if word in known)
    return light if len(words) - len(light) > 1 else ()


@cache
def words_of_days() -> frozenset[str]:
    """Return the words that say nothing beside a day: "what happened", "my notes"."""
    return frozenset(word_lists()["of_days"].split())


#: Verbs behind one thing, by their form behind several.
_OF_ONE = {"are": "is", "were": "was", "have": "has"}


def counted(count: int, noun: str, verb: str = "") -> str:
    """Write a count with its noun: `1 file`, `2,000 files`, `3 batches`, with `verb` also `1 text waits`.

    The verb is given in its form behind several things: are, were, have, wait.
    """
    words = f"{count:,} {noun}" + ("" if count == 1 else "es" if noun.endswith("ch") else "s")
    if not verb:
        return words
    return f"{words} {_OF_ONE.get(verb, f'{verb}s') if count == 1 else verb}"


def share(done: int, total: int, noun: str) -> str:
    """Write how many of a number: `1,052 of 1,052 files`, `0 of 1 file`."""
    return f"{done:,} of {counted(total, noun)}"


def because(reason: str) -> str:
    """Write a reason behind what it explains; nothing where none is known."""
    return f": {reason}" if reason else ""


def span(seconds: float) -> str:
    """Write a time for a reader, in one unit: `45 s`, `12 min`, `1.5 h`, `4 days`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 36 * 3600 else counted(round(seconds / 86_400), "day")


@cache
def word_lists() -> dict[str, str]:
    """Read the sections of `words.txt`."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    sections = (section.partition("]") for section in text.split("\n[")[1:])
    return {name: body for name, _, body in sections}


def money(amount: float | None, currency: str = "USD") -> str:
    """Write an amount; a dash for none, as where no price is known."""
    if amount is None:
        return "–"
    # Embedding a note costs a hundredth of a cent.
    text = f"{amount:,.2f}" if amount == 0 or amount >= 100 else f"{amount:,.4f}"
    return f"${text}" if currency == "USD" else f"{text} {currency}"
