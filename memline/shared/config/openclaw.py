"""Read what only OpenClaw's files have: `memory.qmd`, the blocks of its newest releases, secret references.

Those blocks are `memory.search`, and agents as `agents.entries`. The newest release looked at is 2026.9.6:
nothing in them is refused, what Memline does not know or cannot do is a warning, so that a file that OpenClaw
accepts is used as it is. With `memory.backend: "qmd"` what `memory.qmd` says counts as the weakest layer
above the defaults.
"""

from __future__ import annotations

from memline.shared.config.check import (
    RawConfig,
    Warnings,
    check_block,
    describe,
    mismatch,
    nearest,
    unknown_key,
)
from memline.shared.config.installation import ChatMatch, ChatRule, ChatScope, Qmd
from memline.shared.config.keys import Block, block_of
from memline.shared.config.layers import expand_references
from memline.shared.config.schema import (
    FALLBACKS,
    PROVIDER_CHOICES,
    WITHOUT_EFFECT,
    ExtraPath,
    MemorySearch,
    ProviderEntry,
)
from memline.shared.errors import ConfigError
from memline.shared.providers import PROVIDERS
from memline.shared.tables import as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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

#: Addresses of services that speak OpenAI's protocol, with the variables of their keys and default models.
_COMPATIBLE = {
    "deepinfra": ("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY", "BAAI/bge-m3"),
    "lmstudio": ("http://127.0.0.1:1234/v1", "", ""),
    "openai-compatible": ("", "", ""),
}

#: Sent where a server has no key of its own: OpenAI's is not for it.
_NO_KEY = "none"

#: Servers of the original's `models.providers` that need a protocol of ours.
_OWN_PROTOCOLS = {"ollama": "ollama"}


def read_qmd(raw: RawConfig) -> dict[str, Any]:
    """Return the settings that `memory.qmd` gives; none unless `memory.backend` is qmd.

    Its own, and those of `memory` and `memorySearch` that follow from them: the builtin backend, which
    answers when qmd fails, has the same files, limits and scope, and pays for no vector unless a provider is
    named.
    """
    if raw.get("memory").get("backend") != "qmd":
        return {}
    own = check_block(Qmd, raw.get("memory", "qmd"), at=raw.at("memory.qmd"), warnings=raw.warnings)
    settings: dict[str, Any] = {
        "provider": "none",
        "memory.maxInjectedChars": Qmd().limits.max_injected_chars,
        "memory.scope": _SCOPE,
    }
    for name in QMD_KEYS.keys() & own.keys():
        for path in QMD_KEYS[name]:
            settings[path] = _translated(path, own[name])
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


def read_providers(raw: RawConfig) -> dict[str, dict[str, Any]]:
    """Return address, key and headers of every provider, by id; faults count in those that Memline uses."""
    providers: dict[str, dict[str, Any]] = {}
    for name, entry in raw.get("models", "providers").items():
        at = raw.at(f"models.providers.{name}")
        warnings = raw.warnings if name in USED_PROVIDERS else Warnings()
        if isinstance(entry, dict) and isinstance(entry.get("apiKey"), dict):
            key = secret(entry["apiKey"], f"{at}.apiKey", warnings)
            entry = {name: value for name, value in {**entry, "apiKey": key}.items() if value is not None}
        try:
            settings = check_block(ProviderEntry, entry, at=at, warnings=warnings)
        except ConfigError:
            if name in USED_PROVIDERS:
                raise
            continue
        providers[name] = expand_references(
            ProviderEntry, settings, raw.env, warnings, at=f"{at}.", drop=True
        )
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
        raw.warnings.warn(f"{raw.at('$include')}: {advice}")


def read_search(raw: RawConfig, block: object, *, at: str) -> dict[str, Any]:
    """Return the settings of one `memory.search`, in the keys of `memorySearch`."""
    warnings = raw.warnings
    if not isinstance(block, dict):
        return check_block(MemorySearch, block, at=at, warnings=warnings)
    known = _known(MemorySearch, block, at=at, warnings=warnings)
    if isinstance(remote := known.get("remote"), dict) and "apiKey" in remote:
        remote = {**remote, "apiKey": secret(remote["apiKey"], f"{at}.remote.apiKey", warnings)}
        known["remote"] = {name: each for name, each in remote.items() if each is not None}
    _translate_provider(raw, known, at)
    if "fallback" in known and known["fallback"] not in FALLBACKS:
        warnings.warn(
            f"{at}.fallback: Memline has no {describe(known.pop('fallback'))}; there is no fallback"
        )
    if block.get("rememberAcrossConversations") is True:
        # In the original it implies both.
        sources = known.get("sources", ["memory"])
        known["sources"] = [*sources, "sessions"] if isinstance(sources, list) else sources
        known["experimental"] = {"sessionMemory": True}
    return check_block(MemorySearch, known, at=at, warnings=warnings)


def entries_of(raw: RawConfig) -> list[tuple[str, dict[str, Any]]] | None:
    """List `agents.entries` as (place, entry with its `id`); None when the file has none."""
    entries = raw.get("agents").get("entries")
    if entries is None:
        return None
    if not isinstance(entries, dict):
        raise mismatch(raw.at("agents.entries"), entries)
    found = []
    for agent, entry in entries.items():
        place = raw.at(f"agents.entries.{agent}")
        if isinstance(entry, dict):
            found.append((place, {**entry, "id": agent}))
        else:
            raise mismatch(place, entry)
    return found


def secret(value: object, at: str, warnings: Warnings) -> object:
    """Return a key as it is written; of a reference to the environment the variable, of others None."""
    if not isinstance(value, dict):
        return value
    if value.get("source") == "env" and isinstance(name := value.get("id"), str):
        return f"${{{name}}}"
    warnings.warn(f"{at}: a reference to a secret store is not read; the environment's key counts")
    return None


def _known(
    block: type[Block], raw: dict[str, Any], *, at: str, warnings: Warnings, path: str = ""
) -> dict[str, Any]:
    """Return the keys that have an effect here, and warn of the others."""
    kept: dict[str, Any] = {}
    for name, value in raw.items():
        field, full = block.members.get(name), f"{path}{name}"
        if field is None:
            is_off = value is False or (isinstance(value, dict) and value.get("enabled") is False)
            if full == "rememberAcrossConversations":
                continue
            if reason := WITHOUT_EFFECT.get(full):
                if not is_off:
                    warnings.warn(f"{at}.{name}: without effect here: {reason}")
            else:
                warnings.warn(f"{at}.{name}: {unknown_key(nearest(name, block.members))}")
        elif (inner := block_of(field)) and isinstance(value, dict):
            kept[name] = _known(inner, value, at=f"{at}.{name}", warnings=warnings, path=f"{full}.")
        else:
            kept[name] = value
    return kept


def _translate_provider(raw: RawConfig, known: dict[str, Any], at: str) -> None:
    """Bring a provider of the original's that Memline has under another name into ours, or do without.

    Its own address, key and headers come with it: a key stays with its address.
    """
    provider = known.get("provider")
    if not isinstance(provider, str) or provider in PROVIDER_CHOICES:
        return
    entry = as_dict(raw.get("models", "providers").get(provider))
    url, variable, model = _COMPATIBLE.get(provider, ("", "", ""))
    remote = as_dict(known.get("remote"))
    own = {"baseUrl": entry.get("baseUrl") or url, "headers": entry.get("headers")}
    key = secret(entry.get("apiKey"), raw.at(f"models.providers.{provider}.apiKey"), raw.warnings)
    own["apiKey"] = key or (f"${{{variable}}}" if variable and raw.env.get(variable) else _NO_KEY)
    remote = {name: value for name, value in {**own, **remote}.items() if value}
    if not remote.get("baseUrl"):
        known["provider"] = "none"
        raw.warnings.warn(
            f"{at}.provider: Memline cannot embed with {describe(provider)}; words alone are searched"
        )
        return
    known["provider"] = _OWN_PROTOCOLS.get(str(entry.get("api")), "openai")
    known["remote"] = remote
    named = known.get("model") or model
    if isinstance(named, str) and named:
        known["model"] = named.removeprefix(f"{provider}/")
