"""Set a value in a JSON or JSON5 text, add to a list in it or take out; all else stays, comments too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from memline.shared.config import config_file
from memline.shared.errors import ConfigError
from memline.shared.values import replace, value

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TEXT = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.DOTALL)
_LINE_TAIL = re.compile(r"[ \t]*(,?)[ \t]*(?://[^\n]*|(?:/\*[^\n]*?\*/[ \t]*)*)(?=\n)")
_WORD = re.compile(r"[^\s,:\[\]{}\"'/]+")


@value
class _Node:
    """A value in the text, from `start` up to `end`; its members by name or, of an array, by number."""

    start: int
    end: int
    members: dict[str | int, _Node]
    #: Where the name of a member begins, or an item.
    begin: int


def add(text: str, path: Sequence[str], item: str, *, where: str) -> str:
    """Return the text with `item` at the end of the array at `path`; what is missing on the way is made.

    Raises ConfigError when the text cannot be changed safely; `where` names the file.
    """
    wanted = config_file.parse(text, where=where)
    array = wanted
    for name in path[:-1]:
        array = array.setdefault(name, {})
    array.setdefault(path[-1], []).append(item)
    return _changed(text, lambda whole: _add(whole, path, item), wanted, where)


def remove(text: str, path: Sequence[str], member: int | str, *, where: str) -> str:
    """Return the text without a member of what is at `path`: an item by its number (from 0), or one by name.

    Raises ConfigError when the text cannot be changed safely.
    """
    wanted = holder = config_file.parse(text, where=where)
    for name in path:
        holder = holder[name]
    del holder[member]
    return _changed(text, lambda whole: _remove(whole, path, member), wanted, where)


def put(text: str, path: Sequence[str], value: Any, *, where: str) -> str:
    """Return the text with `value` at `path`, names of members; the objects on the way are made.

    A text that is JSON stays JSON. Raises ConfigError when the text cannot be changed safely.
    """
    wanted = node = config_file.parse(text, where=where)
    for depth in range(len(path)):
        if not isinstance(node, dict):
            what = f"{'.'.join(path[:depth])} is not an object" if depth else "the file has to hold an object"
            raise ConfigError(f"{where}: {what}", hint=f"edit {where} yourself")
        if depth < len(path) - 1:
            node = node.setdefault(path[depth], {})
    if path[-1] in node and node[path[-1]] == value:
        return text
    node[path[-1]] = value
    return _changed(text, lambda whole: _put(whole, path, value), wanted, where)


def _changed(text: str, change: Callable[[str], str], wanted: Any, where: str) -> str:
    """Return the text as changed. Raises ConfigError when it does not say what is wanted then."""
    whole, braces = _with_braces(text)
    whole = change(whole)
    changed = whole[braces : len(whole) - 2 * braces]
    if config_file.parse(changed, where=where) != wanted:
        raise ConfigError(f"{where}: not changed, its form is not understood", hint=f"edit {where} yourself")
    return changed


def _with_braces(text: str) -> tuple[str, int]:
    """Return the text as an object, and 1 when its braces are lent: one before, a line end and one after."""
    start = _blank_end(text, 0)
    if start == len(text):
        return f"{text}{{\n}}\n", 0
    return (text, 0) if text[start] == "{" else (f"{{{text}\n}}", 1)


def _add(text: str, path: Sequence[str], item: str) -> str:
    added = json.dumps(item, ensure_ascii=False)
    node, rest = _reached(text, path)
    if rest:
        return _put(text, path, [item])
    if not node.members:
        return f"{text[: node.start + 1]}{added}{text[node.start + 1 :]}"
    last = node.members[len(node.members) - 1]
    line = text[text.rfind("\n", 0, last.start) + 1 : last.start]
    gap = f"\n{line}" if "\n" in text[node.start : last.start] and not line.strip() else " "
    return f"{text[: last.end]},{gap}{added}{text[last.end :]}"


def _put(text: str, path: Sequence[str], value: Any) -> str:
    node, rest = _reached(text, path)
    if not rest:
        return text[: node.start] + _json(value, _indent_at(text, node.start)) + text[node.end :]
    for name in reversed(rest[1:]):
        value = {name: value}
    outer = _indent_at(text, node.start)
    if not node.members:
        inner = text[node.start + 1 : node.end - 1]
        body = f"\n{outer}  {_json(rest[0], '')}: {_json(value, outer + '  ')}"
        inner = inner if inner.strip() else ""
        return f"{text[: node.start + 1]}{body}{inner}\n{outer}{text[node.end - 1 :]}"
    *_, last = node.members.values()
    first = next(iter(node.members.values()))
    if "\n" not in text[node.start : first.start]:
        member = f"{_json(rest[0], '')}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[: last.end]}, {member}{text[last.end :]}"
    indent = _indent_at(text, first.start)
    member = f"\n{indent}{_json(rest[0], '')}: {_json(value, indent)}"
    # What stands on the line behind the last member belongs to it.
    tail = _LINE_TAIL.match(text, last.end)
    if tail is None:
        return f"{text[: last.end]},{member}{text[last.end :]}"
    if tail[1]:
        return f"{text[: tail.end()]}{member},{text[tail.end() :]}"
    return f"{text[: last.end]},{tail[0]}{member}{text[tail.end() :]}"


def _reached(text: str, path: Sequence[str]) -> tuple[_Node, list[str]]:
    """Return the last value on the way that is there, and the names of those that are missing."""
    node, rest = _scan(text, _blank_end(text, 0)), list(path)
    while rest and rest[0] in node.members:
        node = node.members[rest.pop(0)]
    return node, rest


def _json(value: Any, indent: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2).replace("\n", f"\n{indent}")


def _indent_at(text: str, at: int) -> str:
    """Return the white space with which the line of a place begins."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _remove(text: str, path: Sequence[str], member: int | str) -> str:
    node, _ = _reached(text, path)
    start, end = node.members[member].begin, node.members[member].end
    comma = _blank_end(text, end)
    before = [each.end for each in node.members.values() if each.end <= start]
    if text[comma : comma + 1] == ",":
        end = comma + 1
    elif before:
        start = before[-1]
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
        return _Node(start=start, end=match.end() if match else start + 1, members={}, begin=start)
    members: dict[str | int, _Node] = {}
    at = _blank_end(text, start + 1)
    while text[at] not in "}]":
        name: str | int = len(members)
        begin = at
        if opening == "{":
            key = _scan(text, at)
            name = text[key.start : key.end].strip("\"'")
            at = _blank_end(text, _blank_end(text, key.end) + 1)
        value = _scan(text, at)
        members[name] = replace(value, begin=begin)
        at = _blank_end(text, value.end)
        if text[at] == ",":
            at = _blank_end(text, at + 1)
    return _Node(start=start, end=at + 1, members=members, begin=start)


def _blank_end(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
