"""Judge a value by itself: whether it looks drawn, issued or hashed, or is a name or a word.

The words are a table: `secrets.toml`.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

#: How a value begins that is a call, a variable or an address of code.
CALL = re.compile(
    r"""0x|--|\\&|[a-z]+:`|[&*!@$\w.:>?-]*[\w>][(\[{]|[rbf]{0,2}["'`(\[{]|.*[^=]=[^=]|[a-z]+://|(?:\.{0,2}|~)/[\w.]"""
)
#: What stands around a word and is no part of it.
EDGES = " \t\r\n\"'`,;.)]}>:!?。，、；！？»”’"
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_CODE_NAME = re.compile(r"[a-z0-9](?:Key|Token|Secret|Password|Credentials?|Auth|Config|Type|Name|Info)$")
#: Places where the kind of character changes: many in what is drawn.
_CHANGES = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
#: A part of a name of code, a word of one kind of letters; and a piece of one, of which a drawn run has few.
_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}")
_PIECE = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{5,}")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NO_KEY = re.compile(
    r"(?i)(?:\.{0,2}|~)/|[-+]?0x|_Z[NK]|sha\d|md5|AAAA[BCE]3Nza|[\w.-]+\.[a-z]{2,8}(?:/|$)|v?\d+\.\d|.*\.\w{1,5}$"
)
_HASHLIKE = re.compile(
    r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32,128}|(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9_-]{15,128}"
)


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("secrets.toml").read_text("utf-8"))


def table(name: str) -> dict[str, Any]:
    """Return a table of `secrets.toml`."""
    found: dict[str, Any] = _tables()[name]
    return found


@cache
def words_of(name: str) -> frozenset[str]:
    """Return the words of a list in the table of values."""
    return frozenset(table("values")[name].split())


@cache
def _pattern_of(name: str) -> re.Pattern[str]:
    return re.compile(table("values")[name])


def is_random(run: str) -> bool:
    """Tell whether a run of 16 letters and digits or more looks drawn: its kinds change all the time."""
    size = len(run)
    if size < 16 or _HEX.fullmatch(run):
        return False
    digits = sum(map(str.isdigit, run))
    changes = len(_CHANGES.findall(run)) / size
    if run.lower() == run or run.upper() == run:
        return size >= 20 and digits >= 4 and changes >= 0.25
    pieces = sum(map(len, _PIECE.findall(run)))
    return digits >= 2 and digits < 0.7 * size and changes >= 0.34 and pieces < 0.55 * size


def is_drawn(run: str) -> bool:
    """Tell whether a run with signs in it looks drawn, and is no path, number or name."""
    if _NO_KEY.match(run) or not any(map(str.isdigit, run)):
        return False
    parts = re.split(r"[^A-Za-z0-9]+", run)
    words = sum(1 for part in parts if _WORD.fullmatch(part)) if "_" in run else 0
    if words > 1:
        return False
    if any(is_random(part) for part in parts if not words or len(part) > 23):
        return True
    joined = "".join(parts)
    return (
        not any(map(_WORD.fullmatch, parts))
        and len(joined) >= 24
        and max(map(len, parts)) >= 8
        and is_random(joined)
    )


def is_hashlike(run: str) -> bool:
    """Tell whether a run can be a key of one kind of letters, as md5 and UUID are written."""
    return any(map(str.isdigit, run)) and _HASHLIKE.fullmatch(run) is not None


def is_hash(run: str) -> bool:
    """Tell whether a run is written like md5, SHA or UUID, as many keys are."""
    return len(run) >= 32 and bool(re.fullmatch(r"(?i)[0-9a-f-]+", run))


def _is_identifier(run: str) -> bool:
    """Tell whether a run with `_` in it is a name of code: most of its letters are in words of one kind."""
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", run) if part]
    if "_" not in run or len(parts) < 2 or len(run) > 40:
        return False
    written = sum(
        len(part)
        for part in parts
        if _WORD.fullmatch(part) or (len(part) <= 12 and sum(map(len, _WORD.findall(part))) > 0.6 * len(part))
    )
    return written > 0.5 * sum(map(len, parts))


def is_issued(body: str) -> bool:
    """Tell whether what follows the prefix of a service can be a key: digits or both cases, and changing."""
    if _is_identifier(body):
        return False
    letters = re.sub(r"[^A-Za-z0-9]", "", body)
    size, changes = len(letters), len(_CHANGES.findall(letters))
    digits = sum(map(str.isdigit, letters))
    if size < 12 or (not digits and size < 20 and not body.isalnum()):
        return False
    written = sum(map(len, re.findall(r"[A-Z]?[a-z]{4,}", letters)))
    if written > 0.6 * size and digits < 0.2 * size:
        return False
    return changes >= 0.3 * size or (digits > 1 and changes >= 0.15 * size) or digits > 0.5 * size


def is_key(value: str) -> bool:
    """Tell whether a value is a secret although its name has other meanings: mixed letters and digits are."""
    value = value.strip(EDGES)
    if _HEX.fullmatch(value):
        return len(value) >= 24 and not value.isdigit()
    parts = re.split(r"[^A-Za-z0-9]+", value)
    is_mixed = len(value) >= 8 and len(_CHANGES.findall(value)) >= 0.3 * len(value) and len(parts) < 4
    return not is_code_name(value) and looks(value) and (any(map(is_random, parts)) or is_mixed)


def is_code_name(run: str) -> bool:
    """Tell whether a run ends as names of classes and variables do: `Ed25519PrivateKey`."""
    return bool(_CODE_NAME.search(run))


def is_named(value: str) -> bool:
    """Tell whether a name of code says what it holds: `api_key`, `userToken`."""
    parts = {part.lower() for part in _PART.findall(value)}
    named = parts & words_of("named")
    return parts == named or bool(
        named and ("_" in value or (len(value) < 20 and not re.search(r"\d", value)))
    )


def is_term(value: str) -> bool:
    """Tell whether a word with a digit is an algorithm, a version, a date or a file: `sha256`, `12-digit`."""
    return _pattern_of("term").fullmatch(value) is not None


def looks(value: str) -> bool:
    """Tell whether a word looks like a password: letters and digits, or a sign among letters, and no term."""
    value = value.strip(EDGES)
    if len(value) < 5 or _pattern_of("placeholder").fullmatch(value) or "://" in value:
        return False
    if not re.search(r"[^\W\d_]", value):
        return False
    if re.search(r"\d", value):
        return not is_term(value) and not CALL.match(value) and "@" not in value[1:-1].rstrip("0123456789")
    return bool(re.search(r"[^\W_][!#$%^&*+?][^\W_]", value)) and "/" not in value


def is_literal(value: str) -> bool:
    """Tell whether a value that stands as it is written is one, and not a variable or a mark for one."""
    value = value.strip(" \t\r\n\"'`,;")
    if len(value) < 4 or _pattern_of("placeholder").fullmatch(value):
        return False
    if value.lower().strip(EDGES) in words_of("stop"):
        return False
    words = [word.lower() for word in re.split(r"[^A-Za-z0-9]+", value) if word]
    is_mark = len(words) > 1 and all(map(str.isalpha, words)) and not words_of("marks").isdisjoint(words)
    return not is_mark


def is_prose(text: str) -> bool:
    """Tell whether a text is a sentence or a part of one."""
    words = text.lower().split()
    return len(words) > 1 and not words_of("prose").isdisjoint(words) and not any(map(looks, words))
