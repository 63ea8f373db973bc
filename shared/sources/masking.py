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

from shared.sources.secret_patterns import (
    ANNOUNCED,
    AWS_SECRET_CHARS,
    AWS_WORDS,
    FORMS,
    NO_KEYS,
    PEM,
    RUN,
    RUN_NEAR_CHARS,
    RUN_WORDS,
    SECRET_KEYS,
    TAILS,
)

#: What stands for a secret.
MASK = "***"

#: Shortest key of a known form of which something is shown.
SHOWN_FROM_CHARS = 18

_Replace = Callable[[re.Match[str]], str]

#: `key: name`, `key=lambda`, `Key: The`: the words have other meanings, and no key is a short plain word.
_PLAIN = re.compile(r"[A-Za-z][a-z_]{0,14}[^A-Za-z0-9]*")
_AMBIGUOUS = ("key", "Key", "signature", "Signature")

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
def _run() -> re.Pattern[str]:
    return re.compile(RUN)


def _mask_runs(text: str) -> str:
    lowered = text.lower()
    is_aws = any(word in lowered for word in AWS_WORDS)
    if not is_aws and not any(word in lowered for word in RUN_WORDS):
        return text

    def hide(match: re.Match[str]) -> str:
        run = match[0]
        if is_aws and len(run) == AWS_SECRET_CHARS and _is_mixed(run):
            return MASK
        # A path is taken by its parts.
        if not any(len(part) >= 16 and _is_mixed(part) for part in run.split("/")):
            return run
        before = text[max(0, match.start() - RUN_NEAR_CHARS) : match.start()].lower()
        return MASK if any(word in before for word in RUN_WORDS) else run

    return _run().sub(hide, text)


def _is_mixed(run: str) -> bool:
    return all(re.search(kind, run) for kind in ("[a-z]", "[A-Z]", "[0-9]"))


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
    if groups.get("word") in _AMBIGUOUS and _is_no_secret(match, groups["bare"] or ""):
        return match[0]
    return f"{groups['name']}{groups.get('quote') or ''}{MASK}{groups.get('close') or ''}"


def _is_no_secret(match: re.Match[str], value: str) -> bool:
    before = match.string[max(0, match.start() - 16) : match.start()].lower()
    if before.endswith(NO_KEYS):
        return True
    is_secret_key = before.endswith(("_", "-")) or before.rstrip().endswith(SECRET_KEYS)
    return _PLAIN.fullmatch(value) is not None and not is_secret_key
