"""Check what a configuration file says against the blocks of the schema.

The first mistake is a `ConfigError` with its path, the reason and the nearest key. A key that no block
declares is a mistake below `memorySearch`, `queue`, `serve`, `limits` and `prices`; elsewhere the file may
have OpenClaw's own keys. In an `openclaw.json` unknown keys are ignored everywhere but in a scope, and a
number out of range becomes the nearest allowed one, both with a warning. No message quotes a secret.
"""

import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

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

#: Characters of a wrong word that are compared with the allowed ones.
_MAX_WORD = 80


class Reading:
    """Reads one file: it knows the file's name and whose file it is, and collects the warnings."""

    def __init__(self, name: str = "", *, is_openclaw: bool = False) -> None:
        self.name = name
        self.is_openclaw = is_openclaw
        self.warnings: list[str] = []

    def at(self, path: str) -> str:
        """Name a place in the file."""
        return f"{self.name}: {path}" if path else self.name

    def warn(self, path: str, message: str) -> None:
        """Keep a warning of a value that has another effect than written; each is kept once."""
        if (warning := f"{self.at(path)}: {message}") not in self.warnings:
            self.warnings.append(warning)

    def check(self, kind: Any, raw: Any, path: str = "") -> Any:
        """Return the value at this path in a form that msgspec converts to `kind`. Raises ConfigError."""
        if isinstance(kind, types.UnionType):
            kind = typing.get_args(kind)[0]
        if isinstance(kind, type) and issubclass(kind, Block):
            return self._block(kind, raw, path)
        of, arguments = typing.get_origin(kind), typing.get_args(kind)
        if of is tuple and isinstance(raw, list):
            items = [each for each in raw if not isinstance(each, str) or each.strip()]
            return [self.check(arguments[0], each, f"{path}[{at}]") for at, each in enumerate(items)]
        if of is Mapping and isinstance(raw, dict):
            return {name: self.check(arguments[1], each, f"{path}.{name}") for name, each in raw.items()}
        return self._leaf(kind, raw, path)

    def _block(self, block: type[Block], raw: Any, path: str) -> dict[str, Any]:
        if isinstance(raw, str) and block.shorthand:
            raw = {block.shorthand: raw}
        if not isinstance(raw, dict):
            found = "a text" if isinstance(raw, str) else describe(raw)
            words = f"{self.at(path)}: expected an object, found {found}"
            raise ConfigError(words, hint="write { … } there")
        known = {each.encode_name: each for each in msgspec.structs.fields(block)}
        checked = {}
        for name, each in raw.items():
            place = f"{path}.{name}".lstrip(".")
            if name in known:
                checked[name] = self.check(known[name].type, each, place)
            else:
                self._unknown(block, name, known, place)
        for name, field in known.items():
            if name not in checked and field.default is field.default_factory is msgspec.NODEFAULT:
                raise ConfigError(f"{self.at(path)}: {name} is missing", hint=f"add {name} there")
        return checked

    def _unknown(self, block: type[Block], name: str, known: Iterable[str], path: str) -> None:
        is_open = issubclass(block, OpenBlock)
        near = nearest(name, known, _ALIKE if is_open else _RATHER_ALIKE)
        instead = f"write {near} instead" if near else f"remove {path}"
        if block in _SCOPES or not (is_open or self.is_openclaw):
            raise ConfigError(f"{self.at(path)}: unknown key", hint=instead)
        if near or not is_open:
            self.warn(path, f"unknown key, without effect{f', {instead}' if near else ''}")

    def _leaf(self, kind: Any, raw: Any, path: str) -> Any:
        limits = {}
        for each in getattr(kind, "__metadata__", ()):
            limits = {"low": each.ge, "high": each.le} | (each.extra or {})
        if limits.get("secret") and isinstance(raw, dict):
            raw = self._reference(raw, path)
        if isinstance(raw, str):
            raw = limits["parse"](raw.strip()) if "parse" in limits else raw.strip()
        # JSON5 has one kind of number: 400.0 is a whole one.
        if isinstance(raw, float) and raw.is_integer():
            raw = int(raw)
        if isinstance(raw, float) and not math.isfinite(raw):
            raise self._misfit(path, "expected a finite number")
        choices = limits.get("choices", ())
        if choices and raw not in choices:
            near = nearest(raw, choices) if isinstance(raw, str) else ""
            said = f"expected {', '.join(filter(None, choices))}, found {describe(raw)}"
            raise self._misfit(path, said, f"write {near} instead" if near else "")
        if self.is_openclaw and isinstance(raw, int | float) and not isinstance(raw, bool):
            raw = self._clamped(raw, limits, path)
        try:
            return msgspec.to_builtins(msgspec.convert(raw, kind))
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at `$")
            if "regex" in reason:
                raise self._misfit(path, "this text has characters that are not allowed there") from None
            for word, plain in _PLAIN.items():
                reason = reason.partition(", got ")[0].replace(word, plain)
            found = f", found {'a text' if isinstance(raw, str) else describe(raw)}"
            raise self._misfit(path + where.rstrip("`"), reason + found) from None

    def _misfit(self, path: str, reason: str, hint: str = "") -> ConfigError:
        return ConfigError(
            f"{self.at(path)}: {reason}",
            hint=hint or "correct the value, or remove the key to have its default",
        )

    def _clamped(self, raw: float, limits: dict[str, Any], path: str) -> float:
        low, high = limits.get("low"), limits.get("high")
        near = low if low is not None and raw < low else high if high is not None and raw > high else raw
        if near != raw:
            self.warn(path, f"{raw} is outside of its limits, {near} is used")
        return near

    def _reference(self, raw: dict[str, Any], path: str) -> str:
        """Return OpenClaw's reference to a secret as `${NAME}`; empty for one to another store."""
        if raw.get("source") == "env" and isinstance(name := raw.get("id"), str):
            return f"${{{name}}}"
        self.warn(path, "a reference to a secret store is not read; the environment's key counts")
        return ""


def nearest(name: str, known: Iterable[str], likeness: float = _RATHER_ALIKE) -> str:
    """Return the known name that resembles this one most; empty when none does."""
    from difflib import get_close_matches  # for a wrong word only

    folded = {candidate.lower(): candidate for candidate in known}
    word = name[:_MAX_WORD].lower().replace("_", "").replace("-", "")
    close = get_close_matches(word, folded, n=1, cutoff=likeness)
    return folded[close[0]] if close else ""


def describe(raw: object) -> str:
    """Name a value in the words of JSON."""
    match raw:
        case None:
            return "null"
        case bool():
            return "true" if raw else "false"
        case int() | float():
            return "a huge number" if 1e18 <= abs(raw) < math.inf else f"the number {raw}"
        case str():
            return f'"{raw}"' if len(raw) <= 80 else "a long text"
        case list():
            return "an array"
    return "an object"
