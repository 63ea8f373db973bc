"""Read the blocks of OpenClaw's newest releases: `memory.search`, and agents as `agents.entries`.

Looked at: 2026.9.6. Nothing in them is refused: what Memline does not know or cannot do is a warning, so that
a file that OpenClaw accepts is used as it is.
"""

from __future__ import annotations

from typing import Any

from memline.shared.config.check import Issues, RawConfig, check_block, describe
from memline.shared.config.keys import Block, Setting, block_of
from memline.shared.config.schema import FALLBACKS, PROVIDER_CHOICES, WITHOUT_EFFECT, MemorySearch

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


def read_search(raw: RawConfig, block: object, *, at: str) -> dict[str, Setting]:
    """Return the settings of one `memory.search`, in the keys of `memorySearch`."""
    issues = raw.issues
    if not isinstance(block, dict):
        return check_block(MemorySearch, block, at=at, issues=issues)
    known = _known(MemorySearch, block, at=at, issues=issues)
    if isinstance(remote := known.get("remote"), dict) and "apiKey" in remote:
        remote = {**remote, "apiKey": secret(remote["apiKey"], f"{at}.remote.apiKey", issues)}
        known["remote"] = {name: each for name, each in remote.items() if each is not None}
    _translate_provider(raw, known, at)
    if "fallback" in known and known["fallback"] not in FALLBACKS:
        issues.warn(f"{at}.fallback: Memline has no {describe(known.pop('fallback'))}; there is no fallback")
    if block.get("rememberAcrossConversations") is True:
        # In the original it implies both.
        sources = known.get("sources", ["memory"])
        known["sources"] = [*sources, "sessions"] if isinstance(sources, list) else sources
        known["experimental"] = {"sessionMemory": True}
    return check_block(MemorySearch, known, at=at, issues=issues)


def entries_of(raw: RawConfig) -> list[tuple[str, dict[str, Any]]] | None:
    """List `agents.entries` as (place, entry with its `id`); None when the file has none."""
    entries = raw.get("agents").get("entries")
    if entries is None:
        return None
    if not isinstance(entries, dict):
        raw.issues.mismatch(raw.at("agents.entries"), entries)
        return []
    found = []
    for agent, entry in entries.items():
        place = raw.at(f"agents.entries.{agent}")
        if isinstance(entry, dict):
            found.append((place, {**entry, "id": agent}))
        else:
            raw.issues.mismatch(place, entry)
    return found


def secret(value: object, at: str, issues: Issues) -> object:
    """Return a key as it is written; of a reference to the environment the variable, of others None."""
    if not isinstance(value, dict):
        return value
    if value.get("source") == "env" and isinstance(name := value.get("id"), str):
        return f"${{{name}}}"
    issues.warn(f"{at}: a reference to a secret store is not read; the environment's key counts")
    return None


def _known(
    block: type[Block], raw: dict[str, Any], *, at: str, issues: Issues, path: str = ""
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
                    issues.warn(f"{at}.{name}: without effect here: {reason}")
            else:
                issues.warn(f"{at}.{name}: unknown key, without effect")
        elif (inner := block_of(field)) and isinstance(value, dict):
            kept[name] = _known(inner, value, at=f"{at}.{name}", issues=issues, path=f"{full}.")
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
    entry = raw.get("models", "providers").get(provider)
    entry = entry if isinstance(entry, dict) else {}
    url, variable, model = _COMPATIBLE.get(provider, ("", "", ""))
    remote = known.get("remote", {})
    remote = remote if isinstance(remote, dict) else {}
    own = {"baseUrl": entry.get("baseUrl") or url, "headers": entry.get("headers")}
    key = secret(entry.get("apiKey"), raw.at(f"models.providers.{provider}.apiKey"), raw.issues)
    own["apiKey"] = key or (f"${{{variable}}}" if variable and raw.env.get(variable) else _NO_KEY)
    remote = {name: value for name, value in {**own, **remote}.items() if value}
    if not remote.get("baseUrl"):
        known["provider"] = "none"
        raw.issues.warn(
            f"{at}.provider: Memline cannot embed with {describe(provider)}; words alone are searched"
        )
        return
    known["provider"] = _OWN_PROTOCOLS.get(str(entry.get("api")), "openai")
    known["remote"] = remote
    named = known.get("model") or model
    if isinstance(named, str) and named:
        known["model"] = named.removeprefix(f"{provider}/")
