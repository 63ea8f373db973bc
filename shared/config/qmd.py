"""What is taken over from `memory.qmd`, the settings of the original's other backend.

Memline has one backend. With `memory.backend: "qmd"` the settings that mean the same here become the
weakest layer of every agent's `memorySearch`; the report names each of the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shared.config.check import Leaf, Report, check_leaf, describe
from shared.config.keys import leaves
from shared.config.schema import MemorySearch

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_MINUTES = {"ms": 1 / 60_000, "s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}

#: The keys of `memory.qmd` that are taken over, and which keys of `memorySearch` they become.
TAKEN = {
    "paths": ("extraPaths",),
    "limits.maxResults": ("query.maxResults",),
    "sessions.enabled": ("experimental.sessionMemory", "sources"),
    "update.interval": ("sync.intervalMinutes",),
}

#: Those that are read with `memory` itself (`access.py`), and what they become.
BESIDE = {"limits.maxInjectedChars": "memory.maxInjectedChars", "scope": "memory.scope"}


def qmd_layer(memory: Mapping[str, Any], *, where: str, report: Report) -> dict[str, Leaf]:
    """The leaves that `memory.qmd` gives; empty unless `memory.backend` is qmd."""
    if memory.get("backend") != "qmd":
        return {}
    at = f"{where}: memory.qmd"
    report.warn(f'{where}: memory.backend: Memline has its own backend only, "qmd" is read as "builtin"')
    qmd = memory.get("qmd", {})
    if not isinstance(qmd, dict):
        report.problem(f"{at}: found {describe(qmd)}, allowed: an object", "write { … } there")
        return {}
    written = _flat(qmd)
    if without_effect := sorted(written.keys() - TAKEN.keys() - BESIDE.keys()):
        report.warn(f"{at}: without effect in Memline: {', '.join(without_effect)}")
    fields = dict(leaves(MemorySearch))
    layer: dict[str, Leaf] = {}
    for name, paths in TAKEN.items():
        for path in paths if name in written else ():
            raw, here = _translated(path, written[name]), f"{at}.{name}"
            if (value := check_leaf(fields[path], raw, at=here, report=report)) is not None:
                layer[path] = (value, here)
    return layer


def _translated(path: str, value: Any) -> Any:
    """A value of `memory.qmd` as the key of `memorySearch` at this path wants it."""
    match path:
        case "extraPaths":
            return _without_names(value)
        case "sources":
            return ["memory", "sessions"] if value is True else ["memory"]
        case "sync.intervalMinutes":
            return _minutes(value)
    return value


def _without_names(paths: object) -> object:
    """A collection's name has no use here: a file is cited by its path."""
    if not isinstance(paths, list):
        return paths
    return [
        {key: value for key, value in entry.items() if key != "name"} if isinstance(entry, dict) else entry
        for entry in paths
    ]


def _minutes(duration: object) -> object:
    """Whole minutes of `5m`, `1h` or a bare number (minutes); anything else as it is, to be complained of."""
    if isinstance(duration, bool) or not isinstance(duration, str | int | float):
        return duration
    match = _DURATION.fullmatch(str(duration).strip())
    if match is None:
        return duration
    minutes = float(match[1]) * _MINUTES[match[2] or "m"]
    return max(1, round(minutes)) if minutes > 0 else 0


def _flat(qmd: Mapping[str, Any]) -> dict[str, Any]:
    """What is written, by dotted path, one level deep."""
    flat: dict[str, Any] = {}
    for name, value in qmd.items():
        if isinstance(value, dict) and name not in BESIDE:
            flat |= {f"{name}.{inner}": inner_value for inner, inner_value in value.items()}
        else:
            flat[name] = value
    return flat
