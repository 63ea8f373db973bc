"""Check what a configuration file says against the blocks of the schema.

The first mistake is a `ConfigError` with its path, the reason and the nearest key. A key that no block
declares is a mistake below `memorySearch`, `queue`, `serve`, `limits` and `prices`; elsewhere the file may
have OpenClaw's own keys. In an `openclaw.json` unknown keys are ignored everywhere but in a scope, and a
number out of range becomes the nearest allowed one, both with a warning. No message quotes a secret.
"""

import json
import re
import types
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Meta

from memline.shared.config.installation import Block, ChatMatch, ChatRule, ChatScope, OpenBlock
from memline.shared.errors import ConfigError

#: The least likeness of a wrong word to the right one, 1: the same. The higher one is for keys among which
#: OpenClaw has others: `reserveTokens` is .84 like `reserveTokensFloor`, `serv` .89 like `serve`.
_RATHER_ALIKE, _ALIKE = 0.6, 0.85

#: What is meant to keep a chat out must not let it in because of a slip of the pen.
_SCOPES = (ChatScope, ChatRule, ChatMatch)

#: Words of msgspec's messages in those of the documentation.
_PLAIN = {
    "Expected": "expected",
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "an object",
}

B = TypeVar("B", bound=Block)


class Reading:
    """Reads one file: it knows the file's name and whose file it is, and collects the warnings."""

    def __init__(self, name: str = "", *, is_openclaw: bool = False) -> None:
        self.name = name
        self.is_openclaw = is_openclaw
        self.warnings: list[str] = []
        #: Variables by the path of the value that they replace.
        self.variables: dict[str, str] = {}

    def at(self, path: str) -> str:
        """Name the place of a value: in the file, or the variable that it comes from."""
        return self.variables.get(path) or (f"{self.name}: {path}" if path else self.name)

    def warn(self, path: str, message: str) -> None:
        """Keep a warning of a value that has another effect than written; each is kept once."""
        if (warning := f"{self.at(path)}: {message}") not in self.warnings:
            self.warnings.append(warning)

    def check(self, kind: type[B], raw: dict[str, Any], path: str = "") -> B:
        """Return the block at this path; numbers out of range change in `raw`, too. Raises ConfigError."""
        for block, name, place in _unknown(kind, raw, path):
            self._complain(block, name, place)
        while True:
            try:
                return msgspec.convert(raw, kind)
            except msgspec.ValidationError as error:
                self._mend(kind, raw, path, str(error))

    def _complain(self, block: Any, name: str, place: str) -> None:
        is_open = issubclass(block, OpenBlock)
        # `memorySearch` stands in several open blocks and is checked alone.
        known = (*_parts(block), "memorySearch") if is_open else _parts(block)
        near = nearest(name, known, _ALIKE if is_open else _RATHER_ALIKE)
        instead = f"write {near} instead" if near else f"remove {place}"
        if block in _SCOPES or not (is_open or self.is_openclaw):
            raise ConfigError(f"{self.at(place)}: unknown key", hint=instead)
        if near or not is_open:
            self.warn(place, f"unknown key, without effect{f', {instead}' if near else ''}")

    def _mend(self, kind: Any, raw: Any, path: str, message: str) -> None:
        """Bring a number of OpenClaw's into its range; raise ConfigError for any other mistake."""
        reason, _, where = message.partition(" - at `$")
        holder, value = raw, raw
        for step, number in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", where):
            name: Any = step or number
            if number == "...":
                # msgspec does not name the key of a mapping.
                name = next(each for each in value if not _fits(value[each], kind))
            elif number:
                name = int(number)
            path = _place(path, name, value)
            kind, holder, value = _part(kind, name), value, value[name]
        limits = next(iter(getattr(kind, "__metadata__", ())), Meta())
        is_number = isinstance(value, int | float) and (" >= " in reason or " <= " in reason)
        if self.is_openclaw and is_number:
            near = limits.ge if " >= " in reason else limits.le
            holder[name] = near
            self.warn(path, f"{value} is outside of its limits, {near} is used")
            return
        hint = "correct the value, or remove the key to have its default"
        if missing := re.search("required field `(.+)`", reason):
            reason, hint = f"{missing[1]} is missing", f"add {missing[1]} there"
        elif " regex " in reason:
            words = str(limits.description)
            reason = f"expected {words}"
            if near := nearest(value, words.split(", ")):
                hint = f"write {near} instead"
        elif reason.startswith("Expected"):
            reason = f"{plain(reason)}, found {describe(value)}"
        raise ConfigError(f"{self.at(path)}: {reason}", hint=hint)


def plain(message: str) -> str:
    """Return what a message of msgspec expects, in the words of the documentation."""
    words = message.partition(" - at ")[0].partition(", got ")[0]
    for name, each in _PLAIN.items():
        words = words.replace(name, each)
    return words


def bare(kind: Any) -> Any:
    """Return a type without its limits, and without None."""
    while typing.get_origin(kind) in (typing.Annotated, typing.Union, types.UnionType):
        kind = typing.get_args(kind)[0]
    return kind


@cache
def _parts(block: type[Block]) -> dict[str, Any]:
    """Return the types of a block's keys."""
    return {each.encode_name: each.type for each in msgspec.structs.fields(block)}


def _part(kind: Any, name: str | int) -> Any:
    """Return the type of a part of a value of this type; None for an unknown key."""
    block = bare(kind)
    if isinstance(block, type) and issubclass(block, Block):
        return _parts(block).get(name) if isinstance(name, str) else object
    arguments = typing.get_args(block)
    return arguments[0 if typing.get_origin(block) is tuple else 1] if arguments else object


def _place(path: str, name: str | int, holder: Any) -> str:
    return f"{path}[{name}]" if isinstance(holder, list) else f"{path}.{name}".lstrip(".")


def _unknown(kind: Any, raw: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield the block, name and path of each key that no block declares."""
    parts = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for name, each in parts:
        place = _place(path, name, raw)
        if (part := _part(kind, name)) is None:
            yield bare(kind), name, place
        else:
            yield from _unknown(part, each, place)


def _fits(raw: Any, mapping: Any) -> bool:
    """Tell whether a value may stand in a mapping of this type."""
    try:
        msgspec.convert(raw, _part(mapping, ""))
    except msgspec.ValidationError:
        return False
    return True


def nearest(name: str, known: Iterable[str], likeness: float = _RATHER_ALIKE) -> str:
    """Return the known name that resembles this one most; empty when none does."""
    from difflib import get_close_matches  # for a wrong word only

    folded = {candidate.lower(): candidate for candidate in known}
    word = name[:80].lower().replace("_", "").replace("-", "")
    close = get_close_matches(word, folded, n=1, cutoff=likeness)
    return folded[close[0]] if close else ""


def describe(raw: object) -> str:
    """Name a value in the words of JSON, but no text: it may be a secret."""
    text = json.dumps(raw)[:40]
    if isinstance(raw, str):
        return "a text"
    return {"{": "an object", "[": "a list"}.get(text[0], text)
