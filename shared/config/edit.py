"""Add to a list in a JSON5 file, or take away from it; all else in the text stays, comments too."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from memline.shared.config import files
from memline.shared.errors import ConfigError

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TEXT = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.DOTALL)
_WORD = re.compile(r"[^\s,:\[\]{}\"'/]+")


class _Node(NamedTuple):
    """A value in the text, from `start` up to `end`; its members by name or, of an array, by number."""

    start: int
    end: int
    members: dict[str | int, _Node]


def add(text: str, path: Sequence[str], item: str, *, where: str) -> str:
    """Return the text with `item` at the end of the array at `path`; what is missing on the way is made.

    Raises ConfigError when the text cannot be changed safely; `where` names the file.
    """
    wanted = files.parse(text, where=where)
    array = wanted
    for name in path[:-1]:
        array = array.setdefault(name, {})
    array.setdefault(path[-1], []).append(item)
    whole, braces = _with_braces(text)
    changed = _add(whole, path, json.dumps(item, ensure_ascii=False))
    return _checked(changed[braces : len(changed) - 2 * braces], wanted, where)


def remove(text: str, path: Sequence[str], number: int, *, where: str) -> str:
    """Return the text without the item of this number (from 0) of the array at `path`. Raises ConfigError."""
    wanted = array = files.parse(text, where=where)
    for name in path:
        array = array[name]
    del array[number]
    whole, braces = _with_braces(text)
    changed = _remove(whole, path, number)
    return _checked(changed[braces : len(changed) - 2 * braces], wanted, where)


def _checked(text: str, wanted: Any, where: str) -> str:
    if files.parse(text, where=where) != wanted:
        raise ConfigError(f"{where}: not changed, its form is not understood", hint=f"edit {where} yourself")
    return text


def _with_braces(text: str) -> tuple[str, int]:
    """Return the text as an object, and 1 when its braces are lent: one before, a line end and one after."""
    start = _blank_end(text, 0)
    if start == len(text):
        return f"{text}{{\n}}\n", 0
    return (text, 0) if text[start] == "{" else (f"{{{text}\n}}", 1)


def _add(text: str, path: Sequence[str], item: str) -> str:
    node, rest = _scan(text, _blank_end(text, 0)), list(path)
    while rest and rest[0] in node.members:
        node = node.members[rest.pop(0)]
    if rest:
        indent = "  " * (len(path) - len(rest) + 1)
        return f"{text[: node.start + 1]}\n{indent}{_member(rest, item, indent)},{text[node.start + 1 :]}"
    if not node.members:
        return f"{text[: node.start + 1]}{item}{text[node.start + 1 :]}"
    last = node.members[len(node.members) - 1]
    line = text[text.rfind("\n", 0, last.start) + 1 : last.start]
    gap = f"\n{line}" if "\n" in text[node.start : last.start] and not line.strip() else " "
    return f"{text[: last.end]},{gap}{item}{text[last.end :]}"


def _member(path: Sequence[str], item: str, indent: str) -> str:
    if len(path) == 1:
        return f"{path[0]}: [{item}]"
    inner = indent + "  "
    return f"{path[0]}: {{\n{inner}{_member(path[1:], item, inner)},\n{indent}}}"


def _remove(text: str, path: Sequence[str], number: int) -> str:
    node = _scan(text, _blank_end(text, 0))
    for name in path:
        node = node.members[name]
    start, end = node.members[number].start, node.members[number].end
    comma = _blank_end(text, end)
    if text[comma : comma + 1] == ",":
        end = comma + 1
    elif number:
        start = node.members[number - 1].end
    line = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    if stop >= 0 and not text[line:start].strip() and not text[end:stop].strip():
        start, end = line, stop + 1
    elif text[end : end + 1] == " ":
        end += 1
    return text[:start] + text[end:]


def _scan(text: str, start: int) -> _Node:
    """Find the extent of the value at `start`, in a text that is valid JSON5."""
    opening = text[start]
    if opening not in "{[":
        match = _TEXT.match(text, start) or _WORD.match(text, start)
        return _Node(start, match.end() if match else start + 1, {})
    members: dict[str | int, _Node] = {}
    at = _blank_end(text, start + 1)
    while text[at] not in "}]":
        name: str | int = len(members)
        if opening == "{":
            key = _scan(text, at)
            name = text[key.start : key.end].strip("\"'")
            at = _blank_end(text, _blank_end(text, key.end) + 1)
        value = _scan(text, at)
        members[name] = value
        at = _blank_end(text, value.end)
        if text[at] == ",":
            at = _blank_end(text, at + 1)
    return _Node(start, at + 1, members)


def _blank_end(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
