"""Judge a run of characters by itself: whether it looks drawn, issued or hashed, or is a name or a word.

The words are data: `secret_patterns.toml`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from memline.shared.tables import read_table

#: How a value begins that is a call, a variable or an address of code.
CALL = re.compile(
    r"""0x|--|\\&|[a-z]+:`|[&*!@$\w.:>?-]*[\w>][(\[{]|[rbf]{0,2}["'`(\[{]|.*[^=]=[^=]|[a-z]+://|(?:\.{0,2}|~)/[\w.]"""
)
_CODE_NAME = re.compile(r"[a-z0-9](?:Key|Token|Secret|Password|Credentials?|Auth|Config|Type|Name|Info)$")
#: What stands around a word and is no part of it.
EDGES = " \t\r\n\"'`,;.)]}>:!?。，、；！？»”’"
#: Places where the kind of character changes: many in what is drawn.
CHANGES = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
#: A part of a name of code that is no drawn one: a word of one kind of letters.
_WHOLE_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}")
#: A piece of a written name: in what is drawn they are few.
PIECE = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{5,}")
HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")


@cache
def tables() -> dict[str, Any]:
    """Return the file of patterns and words."""
    return read_table(__file__, "secret_patterns.toml")


@cache
def words_of(name: str) -> frozenset[str]:
    return frozenset(tables()["values"][name].split())


@cache
def pattern_of(name: str) -> re.Pattern[str]:
    return re.compile(tables()["values"][name])


def is_random(run: str) -> bool:
    """Whether a run of 16 letters and digits or more looks drawn: its kinds change all the time."""
    size = len(run)
    if size < 16 or HEX.fullmatch(run):
        return False
    digits = sum(map(str.isdigit, run))
    changes = len(CHANGES.findall(run)) / size
    if run.lower() == run or run.upper() == run:
        return size >= 20 and digits >= 4 and changes >= 0.25
    pieces = sum(map(len, PIECE.findall(run)))
    return digits >= 2 and digits < 0.7 * size and changes >= 0.34 and pieces < 0.55 * size


def is_identifier(run: str) -> bool:
    """Whether a run with `_` in it is a name of code: most of its letters are in words of one kind."""
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", run) if part]
    if "_" not in run or len(parts) < 2 or len(run) > 40:
        return False
    written = sum(
        len(part)
        for part in parts
        if _WHOLE_WORD.fullmatch(part)
        or (len(part) <= 12 and sum(map(len, _WHOLE_WORD.findall(part))) > 0.6 * len(part))
    )
    return written > 0.5 * sum(map(len, parts))


def is_code_name(run: str) -> bool:
    """Whether a run ends as names of classes and variables do: `Ed25519PrivateKey`."""
    return bool(_CODE_NAME.search(run))


def is_issued(body: str) -> bool:
    """Whether what follows the prefix of a service can be a key: digits or both cases, and changing."""
    if is_identifier(body):
        return False
    letters = re.sub(r"[^A-Za-z0-9]", "", body)
    size, changes = len(letters), len(CHANGES.findall(letters))
    digits = sum(map(str.isdigit, letters))
    if size < 12 or (not digits and size < 20 and not body.isalnum()):
        return False
    written = sum(map(len, re.findall(r"[A-Z]?[a-z]{4,}", letters)))
    if written > 0.6 * size and digits < 0.2 * size:
        return False
    return changes >= 0.3 * size or (digits > 1 and changes >= 0.15 * size) or digits > 0.5 * size


def is_hash(run: str) -> bool:
    """Whether a run is written like md5, SHA or UUID, as many keys are."""
    return len(run) >= 32 and bool(re.fullmatch(r"(?i)[0-9a-f-]+", run))


def looks(value: str) -> bool:
    """Whether a word looks like a password: letters and digits, or a sign among letters, and no term."""
    value = value.strip(EDGES)
    if len(value) < 5 or pattern_of("placeholder").fullmatch(value) or "://" in value:
        return False
    if not re.search(r"[^\W\d_]", value):
        return False
    if re.search(r"\d", value):
        return (
            not pattern_of("term").fullmatch(value)
            and not re.match(CALL, value)
            and "@" not in value[1:-1].rstrip("0123456789")
        )
    return bool(re.search(r"[^\W_][!#$%^&*+?][^\W_]", value)) and "/" not in value


def is_literal(value: str) -> bool:
    """Whether a value that stands as it is written is one, and not a variable or a mark for one."""
    value = value.strip(" \t\r\n\"'`,;")
    if len(value) < 4 or pattern_of("placeholder").fullmatch(value):
        return False
    return value.lower().strip(EDGES) not in words_of("stop") and not is_mark(value)


def is_mark(value: str) -> bool:
    """Whether a value of plain words says what is to be put there: `example-key`, `API_KEY`."""
    words = [word.lower() for word in re.split(r"[^A-Za-z0-9]+", value) if word]
    if len(words) < 2 or not all(word.isalpha() for word in words):
        return False
    marks = words_of("named") | words_of("marked")
    return any(word in marks or not word.strip("x") for word in words)


def is_prose(text: str) -> bool:
    """Whether a text is a sentence or a part of one."""
    words = text.lower().split()
    return len(words) > 1 and not words_of("prose").isdisjoint(words) and not any(map(looks, words))
