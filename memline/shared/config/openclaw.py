"""Read what only OpenClaw's files have: `memory.qmd`, and the blocks of its newest releases.

Those are `memory.search`, and agents as `agents.entries`; the newest release looked at is 2026.9.6. With
`memory.backend: "qmd"` what `memory.qmd` says is the weakest layer above the defaults.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from memline.shared.config.check import Reading
from memline.shared.config.schema import FALLBACKS, PROVIDER_CHOICES
from memline.shared.providers import PROVIDERS
from memline.shared.values import as_dict, as_list

#: The scope of memory with qmd unless another is written: not in groups, channels and their helpers. As in
#: the original, but for calls without a session key, which are the owner's here.
_QMD_SCOPE = {
    "rules": [
        {"action": "deny", "match": {"chatType": "group"}},
        {"action": "deny", "match": {"chatType": "channel"}},
        {"action": "deny", "match": {"keyPrefix": "subagent:"}},
    ]
}

#: The ids under which the original keeps the providers that Memline can use.
USED_PROVIDERS = frozenset(name for row in PROVIDERS.values() for name in row.entry_names)

#: Addresses of services that speak OpenAI's protocol, with the variables of their keys and default models.
_COMPATIBLE = {
    "deepinfra": ("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY", "BAAI/bge-m3"),
    "lmstudio": ("http://127.0.0.1:1234/v1", "", ""),
}

#: Sent where a server has no key of its own: OpenAI's is not for it.
_NO_KEY = "none"


class Search(NamedTuple):
    """A block of `memorySearch`: the object that holds it, its name there, its path, and its agent."""

    holder: dict[str, Any]
    name: str
    path: str
    agent: str = ""


def searches(raw: dict[str, Any]) -> Iterator[Search]:
    """Yield the blocks of `memorySearch` that the file has, the weakest first."""
    agents, memory = as_dict(raw.get("agents")), as_dict(raw.get("memory"))
    places = [
        Search(raw, "memorySearch", "memorySearch"),
        Search(as_dict(agents.get("defaults")), "memorySearch", "agents.defaults.memorySearch"),
        Search(memory, "search", "memory.search"),
    ]
    for number, each in enumerate(as_list(agents.get("list"))):
        entry = as_dict(each)
        path, agent = f"agents.list[{number}].memorySearch", str(entry.get("id"))
        places.append(Search(entry, "memorySearch", path, agent))
    for agent, each in as_dict(agents.get("entries")).items():
        entry, path = as_dict(each), f"agents.entries.{agent}"
        places.append(Search(as_dict(entry.get("memory")), "search", f"{path}.memory.search", agent))
        places.append(Search(entry, "memorySearch", f"{path}.memorySearch", agent))
    return (each for each in places if each.name in each.holder)


def translate(raw: dict[str, Any], reading: Reading) -> None:
    """Bring the original's newest layout, its providers and `memory.qmd` into our own keys, in place."""
    models, memory = as_dict(raw.get("models")), as_dict(raw.get("memory"))
    providers = as_dict(models.get("providers"))
    for each in searches(raw):
        block, is_newest = as_dict(each.holder[each.name]), each.name == "search"
        # In the original it implies both.
        if is_newest and block.pop("rememberAcrossConversations", None) is True:
            block["sources"] = [*as_list(block.get("sources", ["memory"])), "sessions"]
            block["experimental"] = {"sessionMemory": True}
        _translate_provider(block, each.path, providers, reading)
        if is_newest and block.get("fallback", "none") not in FALLBACKS:
            name = block.pop("fallback")
            reading.warn(f"{each.path}.fallback", f"Memline has no {name!r}; there is no fallback")
    # Entries of providers that Memline does not use are OpenClaw's alone.
    if models:
        used = {name: each for name, each in providers.items() if name in USED_PROVIDERS}
        raw["models"] = {"providers": used}
    for agent, entry in as_dict(as_dict(raw.get("agents")).get("entries")).items():
        as_dict(entry)["id"] = agent
    if memory.get("backend") == "qmd" and memory.get("scope") is None:
        memory["scope"] = as_dict(memory.get("qmd")).get("scope") or _QMD_SCOPE


def _translate_provider(
    block: dict[str, Any], path: str, providers: dict[str, Any], reading: Reading
) -> None:
    """Bring a provider that Memline has under another name into ours, or do without.

    Its own address, key and headers come with it: a key stays with its address.
    """
    provider = block.get("provider")
    if not isinstance(provider, str) or provider in PROVIDER_CHOICES:
        return
    entry, remote = as_dict(providers.get(provider)), as_dict(block.get("remote"))
    url, variable, model = _COMPATIBLE.get(provider, ("", "", ""))
    if not (entry or url or path.endswith("search")):
        # A word that was mistyped: `check` names the nearest one.
        return
    key = entry.get("apiKey") or (f"${{{variable}}}" if variable and reading.env.get(variable) else _NO_KEY)
    own = {"baseUrl": entry.get("baseUrl") or url, "headers": entry.get("headers"), "apiKey": key}
    remote = {name: each for name, each in {**own, **remote}.items() if each}
    if not remote.get("baseUrl"):
        block["provider"] = "none"
        at = f"{path}.provider"
        reading.warn(at, f"Memline cannot embed with {provider!r}; words alone are searched")
        return
    block["provider"] = "ollama" if entry.get("api") == "ollama" else "openai"
    block["remote"] = remote
    if isinstance(name := block.get("model") or model, str) and name:
        block["model"] = name.removeprefix(f"{provider}/")


def of_qmd(memory: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of `memorySearch` that follow from `memory`, where its back end is qmd.

    The builtin backend, which answers when qmd fails, has the same files and limits, and pays for no vector
    unless a provider is named.
    """
    qmd = as_dict(memory.get("qmd"))
    if memory.get("backend") != "qmd":
        return {}
    settings: dict[str, Any] = {"provider": "none"}
    if paths := as_list(qmd.get("paths")):
        settings["extraPaths"] = [
            {name: entry[name] for name in ("path", "pattern") if name in entry}
            for entry in map(as_dict, paths)
        ]
    if most := as_dict(qmd.get("limits")).get("maxResults"):
        settings["query"] = {"maxResults": most}
    if (has_sessions := as_dict(qmd.get("sessions")).get("enabled")) is not None:
        settings["experimental"] = {"sessionMemory": has_sessions}
        settings["sources"] = ["memory", "sessions"] if has_sessions else ["memory"]
    if (minutes := as_dict(qmd.get("update")).get("interval")) is not None:
        settings["sync"] = {"intervalMinutes": min(525_600, max(1, round(minutes))) if minutes > 0 else 0}
    return settings
