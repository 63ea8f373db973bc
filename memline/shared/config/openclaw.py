"""Read what only OpenClaw's files have: `memory.qmd`, and the blocks of its newest releases.

Those are `memory.search`, and agents as `agents.entries`; the newest release looked at is 2026.9.6. With
`memory.backend: "qmd"` what `memory.qmd` says is the weakest layer above the defaults.
"""

from collections.abc import Iterator
from typing import Any

from memline.shared.config.check import Reading, describe
from memline.shared.config.environment import Environment
from memline.shared.config.installation import ChatMatch, ChatRule, ChatScope
from memline.shared.config.schema import FALLBACKS, PROVIDER_CHOICES
from memline.shared.providers import PROVIDERS
from memline.shared.tables import as_dict

#: The scope of memory with qmd unless another is written: not in groups, channels and their helpers. As in
#: the original, but for calls without a session key, which are the owner's here.
QMD_SCOPE = ChatScope(
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
}

#: Sent where a server has no key of its own: OpenAI's is not for it.
_NO_KEY = "none"


def translate(raw: dict[str, Any], env: Environment, reading: Reading) -> None:
    """Bring providers and keys of the original's newest layout into those of `memorySearch`, in place."""
    providers = as_dict(as_dict(raw.get("models")).get("providers"))
    for path, block, is_newest in _searches(raw):
        # In the original it implies both.
        if is_newest and block.pop("rememberAcrossConversations", None) is True:
            block["sources"] = [*block.get("sources", ["memory"]), "sessions"]
            block["experimental"] = {"sessionMemory": True}
        _translate_provider(block, path, providers, env, reading)
        if is_newest and block.get("fallback", "none") not in FALLBACKS:
            name = describe(block.pop("fallback"))
            reading.warn(f"{path}.fallback", f"Memline has no {name}; there is no fallback")
    # Entries of providers that Memline does not use are OpenClaw's alone.
    if providers:
        raw["models"] = {"providers": {name: providers[name] for name in providers if name in USED_PROVIDERS}}


def _searches(raw: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield each block of `memorySearch`, with its path, and whether it is of the newest layout."""
    agents, memory = as_dict(raw.get("agents")), as_dict(raw.get("memory"))
    listed, entries = agents.get("list"), as_dict(agents.get("entries"))
    places: list[tuple[str, Any, str]] = [("", raw, "memorySearch"), ("memory.", memory, "search")]
    places.append(("agents.defaults.", agents.get("defaults"), "memorySearch"))
    for number, entry in enumerate(listed if isinstance(listed, list) else ()):
        places.append((f"agents.list[{number}].", entry, "memorySearch"))
    for name, entry in entries.items():
        places.append((f"agents.entries.{name}.memory.", as_dict(entry).get("memory"), "search"))
        places.append((f"agents.entries.{name}.", entry, "memorySearch"))
    for path, holder, name in places:
        if isinstance(block := as_dict(holder).get(name), dict):
            yield f"{path}{name}", block, name == "search"


def _translate_provider(
    block: dict[str, Any], path: str, providers: dict[str, Any], env: Environment, reading: Reading
) -> None:
    """Bring a provider that Memline has under another name into ours, or do without.

    Its own address, key and headers come with it: a key stays with its address.
    """
    provider = block.get("provider")
    if not isinstance(provider, str) or provider in PROVIDER_CHOICES:
        return
    entry, remote = as_dict(providers.get(provider)), as_dict(block.get("remote"))
    url, variable, model = _COMPATIBLE.get(provider, ("", "", ""))
    is_known = bool(entry) or provider in _COMPATIBLE or path.endswith("search")
    if not is_known:
        # A word that was mistyped: `check` names the nearest one.
        return
    key = entry.get("apiKey") or (f"${{{variable}}}" if variable and env.get(variable) else _NO_KEY)
    own = {"baseUrl": entry.get("baseUrl") or url, "headers": entry.get("headers"), "apiKey": key}
    remote = {name: each for name, each in {**own, **remote}.items() if each}
    if not remote.get("baseUrl"):
        block["provider"] = "none"
        at = f"{path}.provider"
        reading.warn(at, f"Memline cannot embed with {describe(provider)}; words alone are searched")
        return
    block["provider"] = "ollama" if entry.get("api") == "ollama" else "openai"
    block["remote"] = remote
    if isinstance(named := block.get("model") or model, str) and named:
        block["model"] = named.removeprefix(f"{provider}/")


def of_qmd(qmd: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of `memorySearch` that follow from a checked `memory.qmd`.

    The builtin backend, which answers when qmd fails, has the same files and limits, and pays for no vector
    unless a provider is named.
    """
    settings: dict[str, Any] = {"provider": "none"}
    if "paths" in qmd:
        settings["extraPaths"] = [
            {name: each for name, each in entry.items() if name != "name"} for entry in qmd["paths"]
        ]
    if most := qmd.get("limits", {}).get("maxResults"):
        settings["query"] = {"maxResults": most}
    if (has_sessions := qmd.get("sessions", {}).get("enabled")) is not None:
        settings["experimental"] = {"sessionMemory": has_sessions}
        settings["sources"] = ["memory", "sessions"] if has_sessions else ["memory"]
    if (minutes := qmd.get("update", {}).get("interval")) is not None:
        settings["sync"] = {"intervalMinutes": min(525_600, max(1, round(minutes))) if minutes > 0 else 0}
    return settings


def context_windows(raw: dict[str, Any]) -> dict[str, int]:
    """Return `contextWindow` of every model below `models.providers`, by `provider/id` and by id (of several
    the first); entries of another shape are left out."""
    windows: dict[str, int] = {}
    for name, entry in as_dict(as_dict(raw.get("models")).get("providers")).items():
        listed = as_dict(entry).get("models")
        for model in listed if isinstance(listed, list) else ():
            window: Any = as_dict(model).get("contextWindow")
            model_id = as_dict(model).get("id")
            is_number = isinstance(window, int | float) and not isinstance(window, bool)
            if isinstance(model_id, str) and is_number and 1 <= window < 2**31:
                windows[f"{name}/{model_id}"] = int(window)
                windows.setdefault(model_id, int(window))
    return windows
