"""Read what only OpenClaw's files have: `memory.qmd`, model windows, secret references, other places of keys.

With `memory.backend: "qmd"` what that block says counts as the weakest layer above the defaults.
"""

from __future__ import annotations

from typing import Any

from memline.shared.config.check import Issues, RawConfig, check_block
from memline.shared.config.keys import Setting
from memline.shared.config.layers import expand_references
from memline.shared.config.openclaw_newest import secret
from memline.shared.config.schema import ChatMatch, ChatRule, ChatScope, ExtraPath, ProviderEntry, Qmd
from memline.shared.providers import PROVIDERS
from memline.shared.values import replace

#: The keys of `memory.qmd` that become keys of `memory` or `memorySearch` as well.
QMD_KEYS = {
    "paths": ("extraPaths",),
    "limits.maxResults": ("query.maxResults",),
    "limits.maxInjectedChars": ("memory.maxInjectedChars",),
    "sessions.enabled": ("experimental.sessionMemory", "sources"),
    "update.interval": ("sync.intervalMinutes",),
    "scope": ("memory.scope",),
}

#: The scope of memory with qmd unless another is written: not in groups, channels and their helpers. As in
#: the original, but for calls without a session key, which are the owner's here.
_SCOPE = ChatScope(
    rules=tuple(
        ChatRule(action="deny", match=match)
        for match in (
            ChatMatch(chat_type="group"),
            ChatMatch(chat_type="channel"),
            ChatMatch(key_prefix="subagent:"),
        )
    )
)

#: The ids under which the original keeps the providers that Memline can use.
USED_PROVIDERS = frozenset(name for row in PROVIDERS.values() for name in row.entry_names)


def read_qmd(raw: RawConfig) -> dict[str, Setting]:
    """Return the settings that `memory.qmd` gives; none unless `memory.backend` is qmd.

    Its own, and those of `memory` and `memorySearch` that follow from them: the builtin backend, which
    answers when qmd fails, has the same files, limits and scope, and pays for no vector unless a provider is
    named.
    """
    memory, at, issues = raw.get("memory"), raw.at("memory.qmd"), raw.issues
    if memory.get("backend") != "qmd":
        return {}
    written = raw.get("memory", "qmd")
    own = check_block(Qmd, written, at=at, issues=issues)
    if "scope" in written and "scope" not in own:
        # What was meant to keep a chat out must not let it in because of a slip of the pen.
        own["scope"] = Setting(value=ChatScope(default="deny"), origin=f"{at}.scope")
    origin = raw.at("memory.backend")
    settings = {
        "provider": Setting(value="none", origin=origin),
        "memory.maxInjectedChars": Setting(value=Qmd().limits.max_injected_chars, origin=origin),
        "memory.scope": Setting(value=_SCOPE, origin=origin),
    }
    for name in QMD_KEYS.keys() & own.keys():
        for path in QMD_KEYS[name]:
            settings[path] = replace(own[name], value=_translated(path, own[name].value))
    return settings | {f"memory.qmd.{name}": setting for name, setting in own.items()}


def _translated(path: str, value: Any) -> Any:
    """Bring a value of `memory.qmd` into the form of the key that it becomes."""
    match path:
        case "extraPaths":
            return tuple(ExtraPath(path=each.path, pattern=each.pattern) for each in value)
        case "sources":
            return ("memory", "sessions") if value else ("memory",)
        case "sync.intervalMinutes":
            return min(525_600, max(1, round(value))) if value > 0 else 0
    return value


def read_providers(raw: RawConfig) -> dict[str, dict[str, Setting]]:
    """Return address, key and headers of every provider, by id; faults count in those that Memline uses."""
    providers: dict[str, dict[str, Setting]] = {}
    for name, entry in raw.get("models", "providers").items():
        at = raw.at(f"models.providers.{name}")
        issues = raw.issues if name in USED_PROVIDERS else Issues()
        if isinstance(entry, dict) and isinstance(entry.get("apiKey"), dict):
            key = secret(entry["apiKey"], f"{at}.apiKey", issues)
            entry = {name: value for name, value in {**entry, "apiKey": key}.items() if value is not None}
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


def warn_of_includes(raw: RawConfig) -> None:
    """Warn of settings that the original keeps in other files."""
    if "$include" in raw.content:
        advice = "not followed, put the keys that Memline reads into this file"
        raw.issues.warn(f"{raw.at('$include')}: {advice}")
