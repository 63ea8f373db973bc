"""Cutting one very long line into pieces: after a sentence, else between words, never within a character."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from shared.sources.tokens import CHARS_PER_TOKEN, weighted_length

#: Ends of sentences: with a space behind them, and those of scripts that put none.
_SPACED_ENDS = (". ", "! ", "? ", "; ", ".\t", ": ")
_DENSE_ENDS = "。！？；．…"

#: How far back a cut looks for the beginning of a character; longer sequences are noise, and are cut.
_MAX_CLUSTER = 32

_JOINER = "\u200d"


def pieces(line: str, max_weight: int) -> Iterator[str]:
    """`line` in parts, none heavier than `max_weight` (see `tokens`; at least one character each).

    The parts joined are the line.
    """
    max_weight = max(max_weight, CHARS_PER_TOKEN)
    ascii_line = line.isascii()
    start = 0
    while start < len(line):
        window = line[start : start + max_weight]
        if not ascii_line:
            window = window[: _fitting(window, max_weight)]
        stop = start + len(window)
        if stop < len(line):
            stop = start + _cut(window, line[stop])
        yield line[start:stop]
        start = stop


def _fitting(window: str, max_weight: int) -> int:
    """How many characters from the start weigh at most `max_weight`."""
    low, high = 1, len(window)
    while low < high:
        middle = (low + high + 1) // 2
        if weighted_length(window[:middle]) <= max_weight:
            low = middle
        else:
            high = middle - 1
    return low


def _cut(window: str, following: str) -> int:
    """Where to end the part that `window` is the most of."""
    least = len(window) // 2
    best = max(window.rfind(end, least) + len(end) for end in _SPACED_ENDS)
    if not window.isascii():
        best = max(best, *(window.rfind(end, least) + 1 for end in _DENSE_ENDS))
    if best > least:
        return best
    space = max(window.rfind(" ", least), window.rfind("\t", least)) + 1
    if space > 0:
        return space
    return len(window) if (window + following).isascii() else _between_characters(window, following)


def _between_characters(window: str, following: str) -> int:
    """The last place that is not inside a character as a reader sees it; the end when there is none."""
    text = window + following
    for place in range(len(window), max(0, len(window) - _MAX_CLUSTER), -1):
        if not (_continues(text[place]) or _joins(text[place - 1]) or _splits_flag(text, place)):
            return place
    return len(window)


def _continues(char: str) -> bool:
    """Whether the character belongs to the one before it: accents, variation selectors, skin tones …"""
    return (
        char == _JOINER
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
        or unicodedata.category(char)[0] == "M"
        or "\udc00" <= char <= "\udfff"
    )


def _joins(char: str) -> bool:
    """Whether the character pulls the next one in: the joiner, and viramas, which bind Indic consonants."""
    return char == _JOINER or unicodedata.combining(char) == 9


def _splits_flag(text: str, place: int) -> bool:
    """Whether the place is in the middle of a flag, which is a pair of regional indicators."""
    count = 0
    while count < place and "\U0001f1e6" <= text[place - 1 - count] <= "\U0001f1ff":
        count += 1
    return count % 2 == 1 and "\U0001f1e6" <= text[place] <= "\U0001f1ff"
