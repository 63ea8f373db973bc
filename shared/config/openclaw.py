"""Read what only OpenClaw's files have: `memory.qmd`, model windows, secret references, other places of keys.

Memline has one backend. With `memory.backend: "qmd"` the settings of the original's other backend that mean
the same here become the weakest layer; a warning names each of the others.
"""

from __future__ import annotations

import re
from typing import Any

from memline.shared.config.check import Issues, RawConfig, check_block, check_value
from memline.shared.config.keys import Setting, leaves
from memline.shared.config.layers import expand_references
from memline.shared.config.schema import ConfigFile, MemorySearch, ProviderEntry
from memline.shared.providers import PROVIDERS

_DURATION = r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?"
_MINUTES = {"ms": 1 / 60_000, "s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}

#: The keys of `memory.qmd` that are read, and the keys of `memory` or `memorySearch` that they become.
QMD_KEYS = {
    "paths": ("extraPaths",),
    "limits.maxResults": ("query.maxResults",),
    "limits.maxInjectedChars": ("memory.maxInjectedChars",),
    "sessions.enabled": ("experimental.sessionMemory", "sources"),
    "update.interval": ("sync.intervalMinutes",),
    "scope": ("memory.scope",),
}

#: The ids under which the original keeps the providers that Memline can use.
USED_PROVIDERS = frozenset(name for row in PROVIDERS.values() for name in row.entry_names)


def read_qmd(raw: RawConfig) -> dict[str, Setting]:
    """Return the settings that `memory.qmd` gives; none unless `memory.backend` is qmd."""
    memory, at, issues = raw.get("memory"), raw.at("memory.qmd"), raw.issues
    if memory.get("backend") != "qmd":
        return {}
    issues.warn(f'{raw.at("memory.backend")}: Memline has its own backend only, "qmd" is read as "builtin"')
    # By dotted path, one level deep.
    written: dict[str, Any] = {}
    for name, content in raw.get("memory", "qmd").items():
        if isinstance(content, dict) and name not in QMD_KEYS:
            written |= {f"{name}.{inner}": each for inner, each in content.items()}
        else:
            written[name] = content
    if without_effect := sorted(written.keys() - QMD_KEYS.keys()):
        issues.warn(f"{at}: without effect in Memline: {', '.join(without_effect)}")
    fields = dict(leaves(MemorySearch)) | dict(leaves(ConfigFile))
    settings: dict[str, Setting] = {}
    for name in QMD_KEYS.keys() & written.keys():
        for path in QMD_KEYS[name]:
            translated, place = _translated(path, written[name]), f"{at}.{name}"
            if (value := check_value(fields[path], translated, at=place, issues=issues)) is not None:
                settings[path] = Setting(value, place)
    return settings


def _translated(path: str, value: Any) -> Any:
    """Bring a value of `memory.qmd` into the form of the key that it becomes."""
    if path == "extraPaths" and isinstance(value, list):
        # A collection's name has no use here: a file is cited by its path.
        return [
            {key: text for key, text in entry.items() if key != "name"} if isinstance(entry, dict) else entry
            for entry in value
        ]
    if path == "sources":
        return ["memory", "sessions"] if value is True else ["memory"]
    return _minutes(value) if path == "sync.intervalMinutes" else value


def _minutes(duration: object) -> object:
    """Return the whole minutes of `5m`, `1h` or a bare number; anything else as it is, to be refused."""
    is_duration = isinstance(duration, str | int | float) and not isinstance(duration, bool)
    match = re.fullmatch(_DURATION, str(duration).strip()) if is_duration else None
    if match is None:
        return duration
    minutes = float(match[1]) * _MINUTES[match[2] or "m"]
    return max(1, round(minutes)) if minutes > 0 else 0


def read_providers(raw: RawConfig) -> dict[str, dict[str, Setting]]:
    """Return address, key and headers of every provider, by id; faults count in those that Memline uses."""
    providers: dict[str, dict[str, Setting]] = {}
    for name, entry in raw.get("models", "providers").items():
        at = raw.at(f"models.providers.{name}")
        issues = raw.issues if name in USED_PROVIDERS else Issues()
        if isinstance(entry, dict) and isinstance(entry.get("apiKey"), dict):
            issues.warn(
                f"{at}.apiKey: a reference to a secret store is not read; the environment's key counts"
            )
            entry = {key: value for key, value in entry.items() if key != "apiKey"}
        settings = check_block(ProviderEntry, entry, at=at, issues=issues)
        providers[name] = expand_references(ProviderEntry, settings, raw.env, issues, drop=True)
    return providers


def context_windows(raw: RawConfig) -> dict[str, int]:
    """Return `contextWindow` of every model below `models.providers`, by `provider/id` and by id (of several
    the first); entries of another shape are left out."""
    windows: dict[str, int] = {}
    for name, entry in raw.get("models", "providers").items():
        listed = entry.get("models") if isinstance(entry, dict) else None
        for model in listed if isinstance(listed, list) else ():
            if isinstance(model, dict) and isinstance(model.get("id"), str):
                window: Any = model.get("contextWindow")
                is_number = isinstance(window, int | float) and not isinstance(window, bool)
                if is_number and 1 <= window < 2**31:
                    windows[f"{name}/{model['id']}"] = int(window)
                    windows.setdefault(model["id"], int(window))
    return windows


def warn_of_other_places(raw: RawConfig) -> None:
    """Warn of settings that newer versions of the original keep elsewhere."""
    for block, path, advice in (
        (raw.get("memory"), "memory.search", "not read, move it to agents.defaults.memorySearch"),
        (raw.get("agents"), "agents.entries", "not read, move it to agents.list"),
        (raw.content, "$include", "not followed, put the keys that Memline reads into this file"),
    ):
        if path.rpartition(".")[2] in block:
            raw.issues.warn(f"{raw.at(path)}: {advice}")
