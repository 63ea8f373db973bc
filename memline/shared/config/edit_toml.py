"""Set values of one table in a TOML text; all else stays, comments too."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memline.shared.errors import ConfigError

_HEADER = re.compile(r"\s*\[(?!\[)\s*([^\]]*?)\s*\]\s*(?:#.*)?")
_NAME = re.compile(r"""\s*("(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_-]+)\s*(?:\.|$)""")


def put(
    text: str,
    table: Sequence[str],
    values: Mapping[str, str | list[str]],
    *,
    grows: Sequence[str] = (),
    where: str,
) -> str:
    """Return the text with these values in the table of this name, which is made when it is missing.

    A list named in `grows` keeps what it holds. Raises ConfigError when the text cannot be changed safely;
    `where` names the file.
    """
    wanted = copy.deepcopy(_parsed(text, where))
    entry: Any = wanted
    for name in table:
        entry = entry.setdefault(name, {}) if isinstance(entry, dict) else None
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: {'.'.join(table)} is not a table", hint=f"edit {where} yourself")
    old = {name: entry[name] for name in grows if isinstance(entry.get(name), list) and name in values}
    for name, each in old.items():
        values = {**values, name: [*each, *(new for new in values[name] if new not in each)]}
    entry.update(values)
    lines = text.splitlines(keepends=True)
    at = next((number for number in _statements(lines) if _names(lines[number]) == tuple(table)), None)
    if at is None:
        gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        header = ".".join(name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name) for name in table)
        body = "".join(f"{name} = {_toml(value)}\n" for name, value in values.items())
        changed = f"{text}{gap}[{header}]\n{body}"
    else:
        changed = "".join([*lines[:at], *_table(lines, at, values)])
    try:
        is_right = tomllib.loads(changed) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise ConfigError(f"{where}: not changed, its form is not understood", hint=f"edit {where} yourself")
    return changed


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {error}", hint=f"correct {where}: it is not TOML") from error


def _names(line: str) -> tuple[str, ...]:
    """Return the name of the table that begins on this line, part by part; empty when none does."""
    header = _HEADER.fullmatch(line.strip())
    if header is None:
        return ()
    parts, at = [], 0
    while match := _NAME.match(header[1], at):
        name = match[1]
        parts.append(json.loads(name) if name[0] == '"' else name.strip("'"))
        at = match.end()
    return tuple(parts) if at == len(header[1]) else ()


def _table(lines: list[str], at: int, values: Mapping[str, str | list[str]]) -> list[str]:
    """Return the lines from a table's header to the end of the text, with the values."""
    left, kept, number = dict(values), [], at + 1
    while number < len(lines) and not lines[number].lstrip().startswith("["):
        end = _statement_end(lines, number)
        name = lines[number].partition("=")[0].strip().strip("\"'")
        kept += [f"{name} = {_toml(left.pop(name))}\n"] if name in left else lines[number:end]
        number = end
    header = lines[at] if lines[at].endswith("\n") else f"{lines[at]}\n"
    return [header, *(f"{name} = {_toml(value)}\n" for name, value in left.items()), *kept, *lines[number:]]


def _statements(lines: list[str]) -> Iterator[int]:
    """Yield the lines with which statements begin; a long text may look like a table."""
    number = 0
    while number < len(lines):
        yield number
        number = _statement_end(lines, number)


def _statement_end(lines: list[str], start: int) -> int:
    """Return the line behind a statement: an array, or a long text, goes over several."""
    for end in range(start + 1, len(lines) + 1):
        try:
            tomllib.loads("".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue
        return end
    return len(lines)


def _toml(value: str | list[str]) -> str:
    # JSON's texts and lists are TOML's, but for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
