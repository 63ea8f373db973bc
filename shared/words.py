"""Read the word lists: stop words by language, irregular forms and synonyms."""

from __future__ import annotations

from functools import cache
from pathlib import Path

#: Languages whose stop words apply when a question has more of them than English ones: `die` and `war` are
#: content in English.
FOREIGN = ("de", "fr", "es", "pt", "it")


def stop_words(words: list[str]) -> frozenset[str]:
    """Choose the stop words that apply to a text of these lower-case words."""
    english = stop_words_of("en")
    in_english = sum(word in english for word in words)
    if not words or len(words) == in_english:
        return english
    counts = {language: sum(word in stop_words_of(language) for word in words) for language in FOREIGN}
    best = max(FOREIGN, key=lambda language: (counts[language], language))
    return stop_words_of(best) if counts[best] > max(1, in_english) else english


@cache
def stop_words_of(language: str) -> frozenset[str]:
    """Return the stop words of `en` or of one of FOREIGN."""
    return frozenset(word_lists()[f"stop.{language}"].split())


@cache
def word_lists() -> dict[str, str]:
    """Read the sections of `words.txt`."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    sections = (section.partition("]") for section in text.split("\n[")[1:])
    return {name: body for name, _, body in sections}
