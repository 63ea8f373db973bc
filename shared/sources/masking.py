"""Secrets in the text of transcripts: masked before anything is hashed, stored or sent.

What a name announces (`password=`, `Authorization:`) is masked as a whole. Of a key that is known by its form
the first six and last four characters stay, which tells keys apart and nothing more. Masking too much costs a
word, masking too little a secret, so in doubt it is masked.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from functools import lru_cache

from shared.sources.secret_patterns import ANNOUNCED, FORMS, LONG_RUN, PEM, SECRET_KEYS, TAILS

#: What stands for a secret.
MASK = "***"

#: Shortest key of a known form of which something is shown.
SHOWN_FROM_CHARS = 18

_Replace = Callable[[re.Match[str]], str]

#: `key: name`, `key=lambda`: the word has other meanings, and no key is a short plain word.
_PLAIN = re.compile(r"[a-z_]{1,15}[,.;:)\]}]*")

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


#: (word in lower case, pattern that begins with it, replacement)
_Rules = tuple[tuple[str, re.Pattern[str], _Replace], ...]


def mask(text: str) -> str:
    """`text` with every secret masked that can be recognised; line breaks may be anywhere in it."""
    # Names come second: what they announce is hidden as a whole, also when a form left some of it.
    return _mask_runs(_apply(_announced(), _apply(_forms(), text)))


def _apply(rules: _Rules, text: str) -> str:
    lowered = text.lower()
    if len(lowered) != len(text):
        # A letter that is two in lower case would move all places behind it.
        lowered = text.translate(_LOWER)
    found: list[tuple[int, int, str]] = []
    for word, pattern, replace in rules:
        place = lowered.find(word)
        while place >= 0:
            match = pattern.match(text, place)
            if match is None:
                place = lowered.find(word, place + 1)
            else:
                found.append((match.start(), match.end(), replace(match)))
                place = lowered.find(word, match.end())
    return _replaced(text, found) if found else text


def _replaced(text: str, found: list[tuple[int, int, str]]) -> str:
    """`text` with the places found replaced; those that overlap go together, by what the first says."""
    pieces: list[str] = []
    done = 0
    for start, stop, instead in sorted(found):
        if start >= done:
            pieces += (text[done:start], instead)
        done = max(done, stop)
    return "".join((*pieces, text[done:]))


@lru_cache(maxsize=1)
def _forms() -> _Rules:
    return (
        *_compiled((PEM,), _hide_pem, 0),
        *_compiled(FORMS, _hide_key, 0),
        *_compiled(TAILS, _hide_value, 0),
    )


@lru_cache(maxsize=1)
def _announced() -> _Rules:
    return _compiled(ANNOUNCED, _hide_value, re.I)


def _compiled(patterns: Iterable[tuple[str, str]], replace: _Replace, flags: int) -> _Rules:
    compiled = [(words, re.compile(pattern, flags)) for words, pattern in patterns]
    return tuple((word, pattern, replace) for words, pattern in compiled for word in words.split())


@lru_cache(maxsize=1)
def _long_run() -> re.Pattern[str]:
    return re.compile(LONG_RUN[1])


def _mask_runs(text: str) -> str:
    lowered = text.lower()
    if any(word in lowered for word in LONG_RUN[0]):
        return _long_run().sub(_hide_random, text)
    return text


def _hide_pem(match: re.Match[str]) -> str:
    return f"{match['name']}…redacted…{match['close'] or ''}"


def _hide_key(match: re.Match[str]) -> str:
    token = match["token"]
    if len(token) < SHOWN_FROM_CHARS:
        return MASK
    # With a piece on the next line the end of this one is the middle of the key.
    return f"{token[:6]}…{'' if match['rest'] else token[-4:]}"


def _hide_value(match: re.Match[str]) -> str:
    groups = match.groupdict()
    is_plain = groups.get("word") == "key" and _PLAIN.fullmatch(groups["bare"] or "")
    if is_plain and not _is_secret_key(match):
        return match[0]
    return f"{groups['name']}{groups.get('quote') or ''}{MASK}{groups.get('close') or ''}"


def _is_secret_key(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 16) : match.start()].lower()
    return before.endswith(("_", "-")) or before.rstrip().endswith(SECRET_KEYS)


def _hide_random(match: re.Match[str]) -> str:
    run = match[0]
    return MASK if all(re.search(kind, run) for kind in ("[a-z]", "[A-Z]", "[0-9]")) else run
