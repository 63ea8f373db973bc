"""Read what a configuration file says: bring it into the form of the schema, and check it against that.

Texts lose their surrounding blanks, paths become absolute, `${NAME}` the variable, a text in the place of an
object its `path`, `512kb` and `5m` numbers.

The first mistake is a `ConfigError` with its path, the reason and the nearest key. A key that no block
declares is a mistake in `agents` and below `memorySearch`, `queue`, `serve`, `limits` and `prices`;
elsewhere the file may have OpenClaw's own keys. In an `openclaw.json` unknown keys are ignored everywhere
but in a scope, and a number out of range becomes the nearest allowed one, both with a warning. No message
quotes a secret.
"""

import os
import re
import types
import typing
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

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

_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MINUTES = {"": 1.0, "ms": 1 / 60_000, "s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}
#: `${NAME}` is the variable NAME; `$${NAME}` is those very characters.
_REFERENCE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_DIRECT = {"dm": "direct", "private": "direct"}

_CORRECT = "correct the value, or remove the key to have its default"


class Reading:
    """Reads one file: it knows the file's name and whose file it is, and collects the warnings."""

    def __init__(self, env: Environment, name: str = "", *, is_openclaw: bool = False) -> None:
        self.env = env
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

    def read(self, kind: Any, raw: Any, path: str = "", key: str = "") -> Any:
        """Return a value of the file in the form that its type needs, without unknown keys.

        Raises ConfigError. A variable that is not set is an error: with another key than the one meant, a
        request might go to the wrong place. Below `models`, which is OpenClaw's, the value is empty instead.
        """
        if isinstance(raw, dict) and key in _WITH_REFERENCES and raw.get("source") in ("env", "file", "exec"):
            raw = self._secret(raw, path)
        whole = bare(kind)
        origin, arguments = typing.get_origin(whole), typing.get_args(whole)
        if isinstance(raw, dict) and isinstance(whole, type) and issubclass(whole, Block):
            return self._read_block(whole, raw, path)
        if isinstance(raw, dict) and origin is Mapping:
            return {
                name: self.read(arguments[1], each, f"{path}.{name}", key if key in _GROUPS else name)
                for name, each in raw.items()
            }
        if isinstance(raw, list) and origin is tuple:
            items = [each for each in raw if not isinstance(each, str) or each.strip()]
            if key in ("extraPaths", "paths"):
                items = [{"path": each} if isinstance(each, str) else each for each in items]
            return [self.read(arguments[0], each, f"{path}[{at}]", key) for at, each in enumerate(items)]
        if isinstance(raw, str):
            raw = self._read_text(raw.strip(), path, key)
        if isinstance(raw, float) and raw.is_integer():
            # JSON5 has one kind of number: 400.0 is a whole one.
            raw = int(raw)
        try:
            msgspec.convert(raw, kind)
        except msgspec.ValidationError as error:
            return self._mend(kind, raw, path, str(error))
        return raw

    def _read_block(self, block: type[Block], raw: dict[str, Any], path: str) -> dict[str, Any]:
        fields, content = {each.encode_name: each for each in _fields(block)}, dict[str, Any]()
        for name, each in raw.items():
            place = f"{path}.{name}".lstrip(".")
            if name in fields:
                content[name] = self.read(fields[name].type, each, place, name)
            else:
                self._complain(block, [*fields], name, place)
        for name, field in fields.items():
            if field.required and name not in content:
                raise ConfigError(f"{self.at(path)}: {name} is missing", hint=f"add {name} there")
        return content

    def _complain(self, block: type[Block], known: list[str], name: str, place: str) -> None:
        """Raise ConfigError, or warn, of a key that no block declares."""
        is_open = issubclass(block, OpenBlock)
        # `memorySearch` stands in several open blocks and is read alone.
        near = nearest(name, [*known, "memorySearch"], _ALIKE) if is_open else nearest(name, known)
        instead = f"write {near} instead" if near else f"remove {place}"
        if block in _SCOPES or not (is_open or self.is_openclaw):
            raise ConfigError(f"{self.at(place)}: unknown key", hint=instead)
        if near or not is_open:
            self.warn(place, f"unknown key, without effect{f', {instead}' if near else ''}")

    def _mend(self, kind: Any, value: Any, path: str, reason: str) -> Any:
        """Bring a number of OpenClaw's into its range; raise ConfigError for any other mistake."""
        limits = next(iter(getattr(kind, "__metadata__", ())), Meta())
        is_number = isinstance(value, int | float) and (" >= " in reason or " <= " in reason)
        if self.is_openclaw and is_number:
            near = limits.ge if " >= " in reason else limits.le
            self.warn(path, f"{value} is outside of its limits, {near} is used")
            return near
        hint = _CORRECT
        if " regex " in reason:
            words = str(limits.description)
            reason = f"expected {words}"
            if near := nearest(value, words.split(", ")):
                hint = f"write {near} instead"
        else:
            reason = plain(reason)
        raise ConfigError(f"{self.at(path)}: {reason}", hint=hint)

    def _secret(self, reference: dict[str, Any], path: str) -> str:
        """Return OpenClaw's reference to a secret as ours."""
        if reference["source"] == "env" and isinstance(name := reference.get("id"), str):
            return f"${{{name}}}"
        self.warn(path, "a reference to a secret store is not read; the environment's key counts")
        return ""

    def _read_text(self, text: str, path: str, key: str) -> str | float:
        if key in _WITH_REFERENCES:
            return self._with_variables(text, path, key)
        match key:
            case "workspace" | "modelPath" | "modelCacheDir" | "extensionPath":
                return self._absolute(text)
            case "path":
                # That of `extraPaths` begins at the workspace.
                is_index = path.endswith(".store.path")
                return self._absolute(text) if is_index else environment.expand_user(text, self.env)
            case "interval" | "embedInterval" | "forceFlushTranscriptBytes":
                size = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|[smhd]|[kmg]?b|[kg]|)", text.lower())
                units = _BYTES if key == "forceFlushTranscriptBytes" else _MINUTES
                unit = units.get(size[2].removesuffix("b")) if size else None
                return float(size[1]) * unit if size and unit else text
            case "channel" | "keyPrefix" | "rawKeyPrefix":
                return text.lower()
            case "userTimezone":
                try:
                    ZoneInfo(text or "UTC")
                except (KeyError, ValueError, OSError):
                    # As in the original.
                    self.warn(path, f"{text!r} is not a valid time zone, the machine's own is used")
                    return ""
            case "chatType":
                return _DIRECT.get(text, text)
        return text

    def _with_variables(self, text: str, path: str, key: str) -> str:
        env = self.env
        if key == "apiKey" and any(text in names for names in environment.PROVIDER_KEYS.values()):
            # The name of a key's variable, written in the place of the key.
            text = f"${{{text}}}"
        missing = [
            name for mark, name in _REFERENCE.findall(text) if not mark and not environment.secret(env, name)
        ]
        if missing and path.startswith("models."):
            self.warn(path, f"without effect, the variable {', '.join(missing)} is not set")
            return ""
        if missing:
            words = f"{self.at(path)}: the variable {missing[0]} is not set"
            raise ConfigError(words, hint=f"export {missing[0]}=…")
        text = _REFERENCE.sub(lambda each: each[0][1:] if each[1] else environment.secret(env, each[2]), text)
        return text

    def _absolute(self, text: str) -> str:
        """Make a path of the file absolute: `~` expanded, relative to the file's folder."""
        if not text or text.startswith(("hf:", "http://", "https://")):
            return text
        expanded = environment.expand_user(text, self.env)
        return os.path.normpath(Path(self.name).absolute().parent / expanded)


@cache
def _fields(block: type[Block]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(block)


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


def nearest(name: str, known: Iterable[str], likeness: float = _RATHER_ALIKE) -> str:
    """Return the known name that resembles this one most; empty when none does."""
    folded = {candidate.lower(): candidate for candidate in known}
    word = name[:80].lower().replace("_", "").replace("-", "")
    close = get_close_matches(word, folded, n=1, cutoff=likeness)
    return folded[close[0]] if close else ""
