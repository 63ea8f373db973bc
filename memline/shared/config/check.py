"""Check an object of the file against a block of the schema: unknown keys, types, limits.

The first problem is raised as ConfigError, with path, reason and nearest key. Warnings are collected. Values
of secret keys appear in neither.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from memline.shared.config.environment import Environment
from memline.shared.config.keys import (
    REFUSE,
    WARN,
    WARN_IF_NEAR,
    Block,
    block_of,
    build,
)
from memline.shared.errors import ConfigError
from memline.shared.values import Field, field, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Whole numbers above this fit into no timer and no file; it is also the limit of a 32-bit integer.
HIGHEST = 2**31 - 1

#: The type of a key that holds an array of texts.
_TEXTS = "tuple[str, ...]"

#: Characters of a wrong word that are compared with the allowed ones.
_MAX_WORD = 80

#: The least likeness of a wrong word to the one that was meant, 1: the same. The higher one is for keys among
#: which OpenClaw has others: `authHeader` is .71 like `headers`, `citation` .94 like `citations`.
_RATHER_ALIKE, _ALIKE = 0.6, 0.8

_BYTES = r"(\d{1,9}(?:\.\d{1,9})?)\s*(k|m|g)?b?"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATION = r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|d)?"
_MINUTES = {"ms": 1 / 60_000, "s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}


class Warnings(list[str]):
    """Collects each warning of values that are not used as written once."""

    def warn(self, message: str) -> None:
        if message not in self:
            self.append(message)


def mismatch(at: str, raw: object, allowed: str = "an object", form: str = "{ … }") -> ConfigError:
    """Make the error of a value of another kind."""
    # A text in the place of an object may be a key: it is not quoted.
    found = "a text" if isinstance(raw, str) else describe(raw)
    return ConfigError(f"{at}: found {found}, allowed: {allowed}", hint=f"write {form} there")


@value
class RawConfig(Block):
    """The content of a configuration file before it is checked, and the warnings about it."""

    content: Mapping[str, Any] = field(repr=False)
    #: The file; empty without one.
    name: str
    env: Environment = field(repr=False)
    warnings: Warnings

    def at(self, path: str) -> str:
        """Name a place in the file."""
        return f"{self.name}: {path}"

    def get(self, *names: str) -> Mapping[str, Any]:
        """Return an object of the file, an empty one when it is absent. Raises ConfigError."""
        member: Any = self.content
        for number, name in enumerate(names, 1):
            member = member.get(name, {})
            if not isinstance(member, dict):
                raise mismatch(self.at(".".join(names[:number])), member)
        return dict(member)


def check_block(
    block: type[Block],
    raw: object,
    *,
    at: str,
    warnings: Warnings,
    root: type[Block] | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Return the settings of one object by dotted path; `at` is `<file>: <path of the object>`.

    An object inside another one is checked with `root`, the block of the outermost, and the path below it.
    """
    if not isinstance(raw, dict):
        raise mismatch(at, raw)
    settings: dict[str, Any] = {}
    root, known = root or block, block.members
    inside = f"{at}." if ": " in at else f"{at}: "
    for name, item in raw.items():
        field, place, path = known.get(name), f"{inside}{name}", f"{prefix}{name}"
        if field is None:
            _report_unknown(root, block, path, item, place, warnings)
        elif inner := block_of(field):
            settings |= check_block(inner, item, at=place, warnings=warnings, root=root, prefix=f"{path}.")
        else:
            checked = check_value(field, item, at=place, warnings=warnings)
            if field.metadata.get("clamp") and checked != item:
                warnings.warn(f"{place}: {item} is outside of its limits, {checked} is used")
            settings[path] = checked
    for name, field in known.items():
        if field.metadata.get("required") and not str(raw.get(name, "")).strip():
            raise ConfigError(f"{at}: {name} is missing", hint=f"add {name}: {field.metadata['doc']}")
    return settings


def check_value(field: Field[Any], raw: object, *, at: str, warnings: Warnings) -> Any:
    """Return the value in the type of its key. Raises ConfigError when it does not fit."""
    limits, kind = field.metadata, str(field.type)
    if "of" in limits:
        if not kind.startswith("tuple"):
            return build(limits["of"], check_block(limits["of"], raw, at=at, warnings=warnings))
        if not isinstance(raw, list):
            members = f"{{ {', '.join(limits['of'].members)} }}"
            texts = "texts or " if "shorthand" in limits else ""
            raise mismatch(at, raw, f"an array of {texts}{members}", f"[{members}]")
        made = []
        for number, item in enumerate(raw):
            if isinstance(item, str) and "shorthand" in limits:
                if not item.strip():
                    continue
                item = {limits["shorthand"]: item}
            entry = check_block(limits["of"], item, at=f"{at}[{number}]", warnings=warnings)
            made.append(build(limits["of"], entry))
        return tuple(made)
    checked, allowed = fit(raw, kind, limits)
    if checked is None and kind == _TEXTS and isinstance(raw, list):
        for number, member in enumerate(raw):
            fitting, allowed = fit(member, "str", limits)
            if fitting is None:
                raise _misfit(member, allowed, limits, f"{at}[{number}]")
    if checked is None:
        raise _misfit(raw, allowed, limits, at)
    return checked


def _misfit(raw: object, allowed: str, limits: Mapping[str, Any], at: str) -> ConfigError:
    """Make the error of a value that does not fit, with the allowed word that resembles it most."""
    found, hint = describe(raw), ""
    if isinstance(raw, str):
        found = "a value" if limits.get("secret") else found
        near = nearest(raw, limits.get("choices", ()))
        hint = limits.get("advice", {}).get(raw) or (f"write {near} instead" if near else "")
    return ConfigError(
        f"{at}: found {found}, allowed: {allowed}",
        hint=hint or "correct the value, or remove the key to have its default",
    )


def _report_unknown(
    root: type[Block], block: type[Block], path: str, value: object, at: str, warnings: Warnings
) -> None:
    name, known = path.rpartition(".")[2], (*block.members, *block.beside)
    if name in block.beside:
        return
    near = nearest(name, known, _ALIKE if block.unknown == WARN_IF_NEAR else _RATHER_ALIKE)
    if block.unknown != REFUSE:
        if near or block.unknown == WARN:
            warnings.warn(f"{at}: {unknown_key(near)}")
    elif reason := root.without_effect.get(path):
        if not (isinstance(value, dict) and value.get("enabled") is False):
            raise ConfigError(
                f"{at}: this key of the original has no effect here: {reason}", hint=f"remove {path}"
            )
    else:
        raise ConfigError(f"{at}: unknown key", hint=f"write {near} instead" if near else f"remove {path}")


def unknown_key(near: str) -> str:
    """Say of a key in a warning that it is not known, and which one to write; `near` may be empty."""
    return f"unknown key, without effect{f', write {near} instead' if near else ''}"


def nearest(name: str, known: Iterable[str], likeness: float = _RATHER_ALIKE) -> str:
    """Return the known name that resembles this one most; empty when none does."""
    folded = {candidate.lower(): candidate for candidate in known}
    word = name[:_MAX_WORD].lower().replace("_", "").replace("-", "")
    close = get_close_matches(word, folded, n=1, cutoff=likeness)
    return folded[close[0]] if close else ""


def describe(value: object) -> str:
    """Name a value in the words of JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a huge number" if 1e18 <= abs(value) < math.inf else f"the number {value}"
        case str():
            return f'"{value}"' if len(value) <= 80 else "a long text"
        case list():
            return "an array"
    return "an object"


def minutes(duration: object) -> float | None:
    """Return the minutes of `90s`, `5m`, `1h` or a bare number; None for anything else."""
    is_duration = isinstance(duration, str | int | float) and not isinstance(duration, bool)
    match = re.fullmatch(_DURATION, str(duration).strip()) if is_duration else None
    return float(match[1]) * _MINUTES[match[2] or "m"] if match else None


def size(raw: object) -> int | None:
    """Return the bytes of `512kb`, `2mb` or a bare number; None for anything else, and what is too large."""
    is_size = isinstance(raw, str | int | float) and not isinstance(raw, bool)
    match = re.fullmatch(_BYTES, str(raw).strip().lower()) if is_size else None
    found = round(float(match[1]) * _UNITS[match[2] or ""]) if match else HIGHEST + 1
    return found if found <= HIGHEST else None


def fit(raw: Any, kind: str, limits: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the value in the type of its key, None when it does not fit; and what is allowed, in words."""
    choices = limits.get("choices", ())
    words = ", ".join(filter(None, choices))
    match kind:
        case "bool":
            return raw if isinstance(raw, bool) else None, "true or false"
        case "int" | "float":
            low, high = limits.get("low", 0), limits.get("high", HIGHEST)
            allowed = f"{'a whole number' if kind == 'int' else 'a number'} from {low} to {high}"
            # JSON5 has one kind of number: 400.0 is a whole one. A boolean is none, whatever Python says.
            is_usable = float.is_integer if kind == "int" else math.isfinite
            if isinstance(raw, bool) or not (
                isinstance(raw, int) or (isinstance(raw, float) and is_usable(raw))
            ):
                return None, allowed
            near = max(low, min(raw, high))
            fits = near == raw or limits.get("clamp")
            return (int(near) if kind == "int" else float(near)) if fits else None, allowed
        case "Bytes":
            return size(raw), "a number of bytes, or a text such as 512kb or 2mb"
        case "Duration":
            return minutes(raw), "minutes, or a text such as 90s, 5m or 1h"
        case "Day":
            return raw if _is_day(raw) else None, "a day such as 2026-02-28"
        case "str":
            text = limits["normal"](raw) if "normal" in limits and isinstance(raw, str) else raw
            if choices:
                return text if text in choices else None, words
            fits = _is_text(text) and re.fullmatch(limits.get("pattern", "(?s).*"), text)
            return text.strip() if fits else None, limits.get("allowed", "text")
        case "tuple[str, ...]":
            items = raw if isinstance(raw, list) else [None]
            fits = all(map(_is_text, items))
            items = list(map(limits["normal"], items)) if fits and "normal" in limits else items
            if choices:
                return tuple(dict.fromkeys(items)) if fits and {*items} <= {
                    *choices
                } else None, f"an array of {words}"
            return tuple(items) if fits else None, "an array of texts"
        case "Mapping[str, str]":
            # A line break in a header would end it and begin another.
            fits = isinstance(raw, dict) and all(
                name.strip() and isinstance(text, str) and not re.search(r"[\r\n\0]", name + text)
                for name, text in raw.items()
            )
            return dict(raw) if fits else None, "an object of names and texts of one line"
    raise AssertionError(f"a key has the type {kind}, which is not checked")


def _is_day(raw: object) -> bool:
    if not isinstance(raw, str) or not re.fullmatch(r"\d{4}-\d\d-\d\d", raw, re.ASCII):
        return False
    try:
        time.strptime(raw, "%Y-%m-%d")
    except ValueError:
        return False
    return True


def _is_text(raw: object) -> bool:
    """Tell whether this is a text without NUL and halves of characters: no file may be named with either."""
    return isinstance(raw, str) and "\0" not in raw and raw.encode("utf-8", "ignore").decode() == raw
