"""Read what a note says of itself above its text: title, aliases and day.

The front matter of Obsidian and of site generators is YAML between two lines of dashes, of which the plain
forms are read (`key: value`, `key: [a, b]`, a list below the key); Logseq's is lines of `key:: value`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from datetime import date

from memline.shared.sources.folding import path_key
from memline.shared.values import value

#: Names of a note and of one of them that are kept.
_MAX_NAMES = 32
_MAX_CHARS = 160

_PROPERTY = re.compile(r"\s*(?:[-*] )?([A-Za-z][\w-]*):(:?)(?:\s+(.*?))?\s*")
_ITEM = re.compile(r"\s*-\s+(.*?)\s*")
_DAY = re.compile(r"\D{0,2}(\d{4})-?(\d{2})-?(\d{2})(?!\d)")

_TITLES, _ALIASES = ("title",), ("aliases", "alias")
#: The strongest first.
_DAYS = ("date", "created", "created-at", "created_at")


@value
class About:
    """What a note says of itself."""

    #: Title and aliases, each as `name_key` has it.
    names: tuple[str, ...] = ()
    #: ISO day of `date` or `created`; empty when there is none.
    day: str = ""


def about(lines: Sequence[str], front_lines: int) -> About:
    """Read the front matter, the first `front_lines` lines of a note, or Logseq's properties at its top."""
    properties = _yaml(lines[1 : front_lines - 1]) if front_lines else _logseq(lines)
    names = [name for key in (*_TITLES, *_ALIASES) for name in properties.get(key, ())]
    keys = dict.fromkeys(key for name in names if (key := name_key(name[:_MAX_CHARS])))
    days = (_day(text) for key in _DAYS for text in properties.get(key, ()))
    return About(names=tuple(keys)[:_MAX_NAMES], day=next(filter(None, days), ""))


def name_key(name: str) -> str:
    """Bring a title, an alias or the name of a file into the form in which they are compared."""
    plain = name.strip().removeprefix("[[").removesuffix("]]").partition("|")[0]
    return re.sub(r"[\s_-]+", "-", path_key(plain)).strip("-")


def stem_key(path: str) -> str:
    """Return the same of the name of a note's file; Logseq writes the page `a/b` into `a___b.md`."""
    stem = os.path.splitext(path.rpartition("/")[2])[0]
    return name_key(stem.replace("___", "/").replace("%2F", "/"))


def named(notes: Iterable[tuple[str, str]], name: str) -> list[str]:
    """Return the paths of the notes with this title or alias, else of those whose file is named so.

    `notes` are (path, names, one a line) in the order of the result.
    """
    wanted, notes = name_key(name), list(notes)
    titled = [path for path, names in notes if wanted and wanted in names.split("\n")]
    return titled or [path for path, _ in notes if wanted and stem_key(path) == wanted]


def _yaml(lines: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    below: list[str] | None = None
    for line in lines:
        if below is not None and (item := _ITEM.fullmatch(line)):
            below.append(_plain(item[1]))
            continue
        match = _PROPERTY.fullmatch(line)
        below = None
        if match and not match[2] and not line[:1].isspace():
            values = _values(match[3] or "")
            below = found.setdefault(match[1].lower(), [])
            below += values
            below = below if not values else None
    return found


def _logseq(lines: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        match = _PROPERTY.fullmatch(line)
        if not match or not match[2]:
            break
        is_list = match[1].lower() in _ALIASES
        text = match[3] or ""
        values = [_plain(part) for part in (text.split(",") if is_list else [text])]
        found.setdefault(match[1].lower(), []).extend(filter(None, values))
    return found


def _values(text: str) -> list[str]:
    if text.startswith("[") and text.endswith("]") and not text.startswith("[["):
        return [each for part in text[1:-1].split(",") if (each := _plain(part))]
    return [text] if (text := _plain(text)) else []


def _plain(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _day(text: str) -> str:
    match = _DAY.match(text)
    try:
        return date(*map(int, match.groups())).isoformat() if match else ""
    except ValueError:
        return ""
