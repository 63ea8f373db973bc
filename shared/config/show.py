"""The resolved configuration as it may be shown: every value with its origin, no secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from shared.config import environment
from shared.config.block import mask_url, masked
from shared.config.check import Leaf
from shared.config.faces import Serve
from shared.config.keys import default_of, leaves, members
from shared.config.load import Loaded
from shared.config.schema import Compaction, MemorySearch, ProviderEntry, QueueSettings
from shared.config.sessions import COMPACTION
from shared.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A value in the words of JSON, and who set it: `default`, `<file>: <path>`, a variable or an option."""

    value: Any
    origin: str


def shown_for_all(loaded: Loaded) -> dict[str, Shown]:
    """What holds for all agents, by key."""
    shown = {key: _plain(leaf) for key, leaf in loaded.shared_leaves.items()}
    for path, field in leaves(Compaction):
        key = f"{COMPACTION}.{path}"
        value, origin = loaded.shared_leaves.get(key, (default_of(field), "default"))
        shown[key] = _plain((masked(value, field.metadata), origin))
    url, origin = loaded.shared_leaves["queue.url"]
    shown["queue.url"] = Shown(
        value=masked(url, members(QueueSettings)["url"].metadata) or "(not set)", origin=origin
    )
    for name, field in members(Serve).items():
        value, origin = loaded.serve_leaves.get(name, (default_of(field), "default"))
        shown[f"serve.{name}"] = _plain((masked(value, field.metadata), origin))
    for model, price in loaded.price_leaves.items():
        for name, leaf in price.items():
            shown[f"prices.{model}.{name}"] = _plain(leaf)
    for provider, entry in loaded.provider_leaves.items():
        for name, (value, origin) in entry.items():
            shown[f"models.providers.{provider}.{name}"] = Shown(
                value=masked(value, members(ProviderEntry)[name].metadata), origin=origin
            )
    for provider in environment.PROVIDER_KEYS:
        variable = environment.provider_key_name(loaded.ground.env, provider)
        shown[f"keys.{provider}"] = Shown(
            value="(set)" if variable else "(not set)", origin=variable or "default"
        )
    return shown


def shown_for_agent(loaded: Loaded, agent: str) -> dict[str, Shown]:
    """What holds for one agent, by key; a workspace that nobody named is `(not set)`."""
    shown = {"workspace": _workspace(loaded, agent), "indexPath": _plain(loaded.ground.index_path(agent))}
    found: Mapping[str, Leaf] = loaded.ground.leaves(agent)
    for path, field in leaves(MemorySearch):
        value, origin = found.get(path, (default_of(field), "default"))
        shown[f"memorySearch.{path}"] = _plain((masked(value, field.metadata), origin))
    return shown


def keys_of_file(loaded: Loaded) -> set[str]:
    """The keys of the file that have a say in what is shown, each as it stands there."""
    everything = [*shown_for_all(loaded).values()]
    for agent in loaded.settings.agents:
        everything += shown_for_agent(loaded, agent).values()
    prefix = f"{loaded.settings.path}: "
    return {
        origin.removeprefix(prefix)
        for shown in everything
        for origin in shown.origin.split("; ")
        if origin.startswith(prefix)
    }


def _workspace(loaded: Loaded, agent: str) -> Shown:
    try:
        return _plain(loaded.ground.workspace(agent))
    except ConfigError as error:
        return Shown(value="(not set)", origin=error.message)


def _plain(leaf: Leaf) -> Shown:
    value, origin = leaf
    return Shown(value=_json(value), origin=origin)


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if value is None or isinstance(value, bool | int | float | str | Mapping):
        return mask_url(value) if isinstance(value, str) and "://" in value else value
    return str(value)
