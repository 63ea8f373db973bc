"""Measure text in tokens, and cut a long line into pieces of a given weight.

One token is four characters, the estimate of the original; a character of a script without spaces is a
token of its own (measured there: 400 "tokens" of Chinese are 1,600 real ones when it is not).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache

#: Characters in one token.
CHARS_PER_TOKEN = 4

#: Scripts written without spaces, and Hangul: CJK radicals to Yi, compatibility forms, kana, Hangul,
#: half-width kana, the supplementary ideographs, Thai, Lao, Myanmar and Khmer.
DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\ua4cf\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff66-\uffdc\U00020000-\U0003ffff"
)

#: Ends of sentences: with a space behind them, and those of scripts that put none.
_SPACED_ENDS = (". ", "! ", "? ", "; ", ".\t", ": ")
_DENSE_ENDS = "。！？；．…"


@lru_cache(maxsize=1)
def dense_run() -> re.Pattern[str]:
    """Return what matches a run of dense characters; compiling it takes 1.3 ms that ASCII never pays."""
    return re.compile(f"[{DENSE}]+")


@lru_cache(maxsize=1)
def _beside_dense() -> re.Pattern[str]:
    """Return what matches the words that touch a run of dense characters, before it and behind it."""
    word = f"[^\\s{DENSE}]*[^\\W{DENSE}][^\\s{DENSE}]*"
    return re.compile(f"({word})(?=[{DENSE}])|(?<=[{DENSE}])({word})")


@lru_cache(maxsize=1)
def _mixed() -> re.Pattern[str]:
    """Return what matches Latin letters and figures that touch Greek to Arabic letters, and those letters."""
    latin, other = "[A-Za-z][A-Za-z0-9]+", "[\u0370-\u06ff]{3,}"
    return re.compile(
        f"(?<=[\u0370-\u06ff]){latin}|{latin}(?=[\u0370-\u06ff])|(?<=[A-Za-z0-9]){other}|{other}(?=[A-Za-z])"
    )


def weighted_length(text: str) -> int:
    """Return the characters of `text`, a dense one counted as four."""
    if text.isascii():
        return len(text)
    return len(text) + (CHARS_PER_TOKEN - 1) * sum(map(len, dense_run().findall(text)))


def has_dense(text: str) -> bool:
    """Tell whether `text` has a character that is a token of its own."""
    return not text.isascii() and dense_run().search(text) is not None


def grams(text: str) -> str:
    """Return the overlapping pairs of every run of characters written without spaces, for full-text search.

    unicode61 makes one token of such a run, so a word inside it is never found. A run c1..cn gives
    c1c2, c2c3, …, and cn alone: any part of it of two characters or more is a sequence of whole tokens,
    and any single character is the beginning of one. Words, numbers and ids that touch such a run are given
    as well: 换成了Caddy; and so are both parts of a word of two alphabets: הAPI.
    """
    if text.isascii():
        return ""
    pairs: list[str] = []
    for run in dense_run().findall(text.casefold()):
        pairs.extend(run[i : i + 2] for i in range(len(run)))
    if pairs:
        pairs.extend(word for sides in _beside_dense().findall(text) for word in sides if word)
    if re.search("[\u0370-\u06ff][A-Za-z]|[A-Za-z0-9][\u0370-\u06ff]", text):
        pairs.extend(_mixed().findall(text))
    return " ".join(pairs)


def estimate_tokens(text: str) -> int:
    """Return the tokens of `text`, rounded up; 0 for the empty text."""
    return -(-weighted_length(text) // CHARS_PER_TOKEN)


def pieces(line: str, max_weight: int) -> Iterator[str]:
    """Cut `line` into parts, none heavier than `max_weight` (at least one character each).

    The parts joined are the line.
    """
    max_weight = max(max_weight, CHARS_PER_TOKEN)
    ascii_line = line.isascii()
    start = 0
    while start < len(line):
        window = line[start : start + max_weight]
        if not ascii_line:
            weights = range(1, len(window) + 1)
            fitting = bisect_right(
                weights, max_weight, key=lambda size: weighted_length(line[start : start + size])
            )
            window = window[: max(1, fitting)]
        stop = start + len(window)
        if stop < len(line):
            stop = start + _cut(window)
        yield line[start:stop]
        start = stop


def _cut(window: str) -> int:
    """Return where to end the part that `window` is the most of: after a sentence, else between words."""
    least = len(window) // 2
    best = max(window.rfind(end, least) + len(end) for end in _SPACED_ENDS)
    if not window.isascii():
        best = max(best, *(window.rfind(end, least) + 1 for end in _DENSE_ENDS))
    if best > least:
        return best
    space = max(window.rfind(" ", least), window.rfind("\t", least)) + 1
    if space > 0:
        return space
    return len(window)
