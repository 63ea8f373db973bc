"""Checking one object of the file against the schema: unknown keys, types, limits.

Problems are collected, not raised, so that `memline config check` tells all of them at once; `load` raises
the first. Values of secret keys never appear in a problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import Any

from shared.config.block import Block
from shared.config.keys import block_of, leaves, members
from shared.config.schema import ANY_MARKDOWN, ExtraPath, MemorySearch
from shared.errors import ConfigError

#: A value and where it comes from: `<file>: <path>`, a variable, an option, or `default`.
Leaf = tuple[Any, str]

#: Whole numbers above this fit into no timer and no file; it is also the limit of a 32-bit integer.
HIGHEST = 2**31 - 1

#: Keys of the original that would change nothing here, and what to do about them.
FOREIGN = {
    "multimodal": "Memline indexes text alone",
    "store.fts": "Chinese, Japanese and Korean text is found without a tokenizer setting",
    "inputType": "documents and questions are told apart by the provider's own rules",
    "queryInputType": "documents and questions are told apart by the provider's own rules",
    "documentInputType": "documents and questions are told apart by the provider's own rules",
    "rememberAcrossConversations": "transcripts are opened by experimental.sessionMemory and sources",
    "sync.sessions.postCompactionForce": "a transcript is read again whenever it has grown or shrunk",
}

#: Providers of the original's later versions that speak OpenAI's protocol.
COMPATIBLE = ("lmstudio", "openai-compatible", "openrouter", "vllm", "deepinfra")


class Report:
    """What was found wrong in one configuration, and what was taken in another way than written."""

    __slots__ = ("problems", "warnings")

    def __init__(self) -> None:
        self.problems: list[ConfigError] = []
        self.warnings: list[str] = []

    def problem(self, message: str, hint: str = "") -> None:
        # What is wrong in the defaults is met again with every agent.
        if all(message != known.message for known in self.problems):
            self.problems.append(ConfigError(message, hint=hint))

    def warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)


class _Unfit(Exception):
    """A value does not fit its key; the text says what is allowed."""


def check_block(block: type[Block], raw: object, *, at: str, report: Report) -> dict[str, Leaf]:
    """The leaves of one object by dotted path, those that fit; `at` is `<file>: <path of the object>`."""
    found: dict[str, Leaf] = {}
    _walk(block, block, raw, at, "", found, report)
    return found


def check_leaf(field: Field[Any], raw: object, *, at: str, report: Report) -> Any:
    """The value as its key wants it, or None when it does not fit."""
    try:
        return _KINDS[str(field.type)](raw, field)
    except _Unfit as unfit:
        seen = "a value" if field.metadata["secret"] and isinstance(raw, str) else describe(raw)
        report.problem(f"{at}: found {seen}, allowed: {unfit}", _advice(field.name, raw))
        return None


def _walk(
    root: type[Block],
    block: type[Block],
    raw: object,
    at: str,
    prefix: str,
    found: dict[str, Leaf],
    report: Report,
) -> None:
    if not isinstance(raw, dict):
        report.problem(f"{at}: found {describe(raw)}, allowed: an object", "write { … } there")
        return
    known = members(block)
    for name, value in raw.items():
        field, here = known.get(name), f"{at}.{name}"
        if field is None:
            _unknown(root, known, f"{prefix}{name}", value, here, report)
        elif (inner := block_of(field)) is not None:
            _walk(root, inner, value, here, f"{prefix}{name}.", found, report)
        elif (checked := check_leaf(field, value, at=here, report=report)) is not None:
            if field.metadata["clamp"] and checked != value:
                report.warn(f"{here}: {value} is outside of its limits, {checked} is used")
            found[prefix + name] = (checked, here)


def _unknown(
    root: type[Block], known: Mapping[str, Any], path: str, value: object, at: str, report: Report
) -> None:
    if root is MemorySearch and (reason := FOREIGN.get(path)):
        if not (isinstance(value, dict) and value.get("enabled") is False):
            report.problem(f"{at}: this key of the original has no effect here: {reason}", f"remove {path}")
        return
    near = nearest(path.rpartition(".")[2], known) or _elsewhere(root, path)
    report.problem(f"{at}: unknown key", f"did you mean {near}?" if near else f"remove {path}")


def _elsewhere(root: type[Block], path: str) -> str:
    """The full path of a known key with the same last name, or with the nearest one."""
    by_name = {full.rpartition(".")[2]: full for full, _field in leaves(root)}
    last = path.rpartition(".")[2]
    return by_name.get(last) or by_name.get(nearest(last, by_name), "")


def nearest(name: str, known: Mapping[str, Any]) -> str:
    """The known name that resembles this one most; empty when none does."""
    from difflib import get_close_matches

    folded = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower().replace("_", "").replace("-", ""), folded, n=1)
    return folded[close[0]] if close else ""


def describe(value: object) -> str:
    """What was found, in the words of JSON."""
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


def _advice(attribute: str, raw: object) -> str:
    if attribute in ("provider", "fallback") and raw in COMPATIBLE:
        return (
            'write "openai" and the address of that service as remote.baseUrl (it speaks the same protocol)'
        )
    return "correct the value, or remove the key to have its default"


def _boolean(raw: object, field: Field[Any]) -> bool:
    if isinstance(raw, bool):
        return raw
    raise _Unfit("true or false")


def _whole(raw: object, field: Field[Any]) -> int:
    # JSON5 has one kind of number: 400.0 is a whole one. A boolean is none, whatever Python says.
    whole = int(raw) if isinstance(raw, float) and raw.is_integer() else raw
    if isinstance(whole, bool) or not isinstance(whole, int):
        raise _Unfit(f"a whole number {_limits(field)}")
    return int(_within(whole, field, "a whole number"))


def _number(raw: object, field: Field[Any]) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise _Unfit(f"a number {_limits(field)}")
    return float(_within(raw, field, "a number"))


def _limits(field: Field[Any]) -> str:
    low, high = field.metadata["low"], field.metadata["high"]
    return f"from {low or 0} to {HIGHEST if high is None else high}"


def _within(number: float, field: Field[Any], kind: str) -> float:
    low, high = field.metadata["low"], field.metadata["high"]
    nearest_allowed = max(low or 0, min(number, HIGHEST if high is None else high))
    if nearest_allowed != number and not field.metadata["clamp"]:
        raise _Unfit(f"{kind} {_limits(field)}")
    return nearest_allowed


def _text(raw: object, field: Field[Any]) -> str:
    choices = field.metadata["choices"]
    if choices:
        if raw in choices and isinstance(raw, str):
            return raw
        raise _Unfit(", ".join(choices))
    if not isinstance(raw, str) or "\0" in raw:
        raise _Unfit("text")
    return raw.strip()


def _texts(raw: object, field: Field[Any]) -> tuple[str, ...]:
    choices = field.metadata["choices"]
    if not choices:
        if isinstance(raw, list) and all(isinstance(item, str) and "\0" not in item for item in raw):
            return tuple(raw)
        raise _Unfit("an array of texts")
    if isinstance(raw, list) and all(isinstance(item, str) and item in choices for item in raw):
        return tuple(dict.fromkeys(raw))
    raise _Unfit(f"an array of {', '.join(choices)}")


def _headers(raw: object, field: Field[Any]) -> dict[str, str]:
    if isinstance(raw, dict) and all(_is_header(name, text) for name, text in raw.items()):
        return dict(raw)
    raise _Unfit("an object of header names and texts of one line")


def _is_header(name: str, text: object) -> bool:
    # A line break in a header would end it and begin another.
    return bool(name.strip()) and isinstance(text, str) and not any(mark in text + name for mark in "\r\n\0")


def _extra_paths(raw: object, field: Field[Any]) -> tuple[ExtraPath, ...]:
    if not isinstance(raw, list):
        raise _Unfit('an array of paths or of {path: "…", pattern: "…"}')
    return tuple(entry for item in raw if (entry := extra_path(item)) is not None)


def extra_path(raw: object) -> ExtraPath | None:
    """One entry of `extraPaths`; None for a blank one."""
    if isinstance(raw, str) and "\0" not in raw:
        return ExtraPath(path=raw.strip()) if raw.strip() else None
    if isinstance(raw, dict) and not raw.keys() - {"path", "pattern"}:
        path, pattern = raw.get("path"), raw.get("pattern", ANY_MARKDOWN)
        if isinstance(path, str) and isinstance(pattern, str) and path.strip() and "\0" not in path + pattern:
            return ExtraPath(path=path.strip(), pattern=pattern.strip() or ANY_MARKDOWN)
    raise _Unfit('in every entry a path or {path: "…", pattern: "…"}')


_KINDS: dict[str, Callable[[object, Field[Any]], Any]] = {
    "bool": _boolean,
    "int": _whole,
    "float": _number,
    "str": _text,
    "tuple[str, ...]": _texts,
    "tuple[ExtraPath, ...]": _extra_paths,
    "Mapping[str, str]": _headers,
}
