"""Read what a configuration file says: bring it into the form of the schema, and check it against that.

Texts lose their surrounding blanks, paths become absolute, `${NAME}` the variable, a text in the place of an
object its `path`, `512kb` and `5m` numbers (`prepared`).

The first mistake is a `ConfigError` with its path, the reason and the nearest key. A key that no block
declares is a mistake below `memorySearch`, `queue`, `serve`, `limits` and `prices`; elsewhere the file may
have OpenClaw's own keys. In an `openclaw.json` unknown keys are ignored everywhere but in a scope, and a
number out of range becomes the nearest allowed one, both with a warning. No message quotes a secret.
"""

import json
import os
import re
import types
import typing
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Meta

from memline.shared.config import environment
from memline.shared.config.environment import Environment
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

#: Keys whose texts may hold `${NAME}`; of groups, the texts below them.
_WITH_REFERENCES = ("apiKey", "headers", "baseUrl", "url", "token", "tokens")
_GROUPS = ("headers", "tokens")

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MINUTES = {"": 1.0, "ms": 1 / 60_000, "s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}
#: `${NAME}` is the variable NAME; `$${NAME}` is those very characters.
_REFERENCE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_DIRECT = {"dm": "direct", "private": "direct"}

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


def prepared(kind: Any, raw: Any, env: Environment, reading: Reading, path: str = "", key: str = "") -> Any:
    """Return a value of the file in the form that its type needs; what does not fit or is unknown stays.

    A variable that is not set is a ConfigError: with another key than the one meant, a request might go to
    the wrong place. Below `models`, which is OpenClaw's, the value is empty instead, with a warning.
    """
    if isinstance(raw, dict) and key in _WITH_REFERENCES and raw.get("source") in ("env", "file", "exec"):
        # OpenClaw's reference to a secret.
        is_variable = raw["source"] == "env" and isinstance(raw.get("id"), str)
        if not is_variable:
            reading.warn(path, "a reference to a secret store is not read; the environment's key counts")
        raw = f"${{{raw['id']}}}" if is_variable else ""
    if isinstance(raw, dict):
        return raw | {
            name: prepared(part, each, env, reading, _place(path, name, raw), key if key in _GROUPS else name)
            for name, each in raw.items()
            if (part := _part(kind, name)) is not None
        }
    if isinstance(raw, list):
        items = [each for each in raw if not isinstance(each, str) or each.strip()]
        if key in ("extraPaths", "paths"):
            items = [{"path": each} if isinstance(each, str) else each for each in items]
        part = _part(kind, 0)
        return [prepared(part, each, env, reading, f"{path}[{at}]", key) for at, each in enumerate(items)]
    if isinstance(raw, float) and raw.is_integer():
        # JSON5 has one kind of number: 400.0 is a whole one.
        return int(raw)
    if not isinstance(raw, str):
        return raw
    text = raw.strip()
    if key in _WITH_REFERENCES:
        return _with_variables(text, env, reading, path, key)
    match key:
        case "workspace" | "modelPath" | "modelCacheDir" | "extensionPath":
            return _absolute(text, env, reading)
        case "path":
            # That of `extraPaths` begins at the workspace.
            is_index = path.endswith(".store.path")
            return _absolute(text, env, reading) if is_index else environment.expand_user(text, env)
        case "interval" | "embedInterval":
            length = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|)", text)
            return float(length[1]) * _MINUTES[length[2]] if length else text
        case "forceFlushTranscriptBytes":
            size = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([kmg]?)b?", text.lower())
            return round(float(size[1]) * _UNITS[size[2]]) if size else text
        case "allowedHosts":
            # People write scheme and port with it.
            host = r"^(?:https?://)?\[?([^\[\]/:]+|[0-9a-f:.]+)\]?(?::\d+)?/*$"
            return re.sub(host, r"\1", text.lower())
        case "channel" | "keyPrefix" | "rawKeyPrefix":
            return text.lower()
        case "chatType":
            return _DIRECT.get(text, text)
    return text


def _with_variables(text: str, env: Environment, reading: Reading, path: str, key: str) -> str:
    if key == "apiKey" and any(text in names for names in environment.PROVIDER_KEYS.values()):
        # The name of a key's variable, written in the place of the key.
        text = f"${{{text}}}"
    missing = [
        name for mark, name in _REFERENCE.findall(text) if not mark and not environment.secret(env, name)
    ]
    if missing and path.startswith("models."):
        reading.warn(path, f"without effect, the variable {', '.join(missing)} is not set")
        return ""
    if missing:
        words = f"{reading.at(path)}: the variable {missing[0]} is not set"
        raise ConfigError(words, hint=f"export {missing[0]}=…")
    text = _REFERENCE.sub(lambda each: each[0][1:] if each[1] else environment.secret(env, each[2]), text)
    if key == "baseUrl" and text and not re.match(r"(?i)https?://[^\s/?#:]", text):
        # It may hold a password, so it is not repeated.
        reading.warn(path, "not the address of a server, such as http://127.0.0.1:11434/v1")
    return text


def _absolute(text: str, env: Environment, reading: Reading) -> str:
    """Make a path of the file absolute: `~` expanded, relative to the file's folder."""
    if not text or text.startswith(("hf:", "http://", "https://")):
        return text
    return os.path.normpath(Path(reading.name).absolute().parent / environment.expand_user(text, env))
