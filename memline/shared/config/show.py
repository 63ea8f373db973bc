"""Show the resolved configuration: every value with its origin, no secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memline.shared.config import environment
from memline.shared.config.installation import PriceEntry
from memline.shared.config.keys import Block, Setting, default_of, leaves, mask_url, masked
from memline.shared.config.load import Loaded
from memline.shared.config.schema import ConfigFile, MemorySearch, ProviderEntry
from memline.shared.errors import ConfigError
from memline.shared.values import replace


def shown_for_all(loaded: Loaded) -> dict[str, Setting]:
    """Return what holds for all agents in the words of JSON, by key."""
    shared = loaded.context.shared
    shown = {
        key: Setting(value=str(shared[key].value), origin=shared[key].origin) for key in ("home", "stateDir")
    }
    shown |= _shown(ConfigFile, shared)
    if not shown["queue.url"].value:
        shown["queue.url"] = Setting(value="(not set)", origin="default")
    for prefix, block, entries in (
        ("prices.", PriceEntry, loaded.prices),
        ("models.providers.", ProviderEntry, loaded.providers),
    ):
        for name, settings in entries.items():
            entry = _shown(block, settings)
            shown |= {f"{prefix}{name}.{key}": entry[key] for key in settings}
    for provider in environment.PROVIDER_KEYS:
        variable = environment.provider_key_name(loaded.context.env, provider)
        shown[f"keys.{provider}"] = Setting(
            value="(set)" if variable else "(not set)", origin=variable or "default"
        )
    return shown


def shown_for_agent(loaded: Loaded, agent: str) -> dict[str, Setting]:
    """Return what holds for one agent, by key; a workspace that is not configured is `(not set)`."""
    try:
        workspace = _as_text(loaded.context.workspace(agent))
    except ConfigError as error:
        workspace = Setting(value="(not set)", origin=error.message)
    memory = _shown(MemorySearch, loaded.context.settings(agent))
    return {
        "workspace": workspace,
        "indexPath": _as_text(loaded.context.index_path(agent)),
        **{f"memorySearch.{path}": setting for path, setting in memory.items()},
    }


def keys_of_file(loaded: Loaded) -> set[str]:
    """Return the keys of the file that have an effect, each with its path there."""
    settings = [*shown_for_all(loaded).values()]
    for agent in loaded.settings.agents:
        settings += shown_for_agent(loaded, agent).values()
    prefix = f"{loaded.settings.path}: "
    origins = (origin for setting in settings for origin in setting.origin.split("; "))
    return {origin.removeprefix(prefix) for origin in origins if origin.startswith(prefix)}


def _as_text(setting: Setting) -> Setting:
    return replace(setting, value=str(setting.value))


def _shown(block: type[Block], settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return every key of a block, secrets hidden, with its default where it is not set."""
    return {
        path: replace(setting, value=_json(masked(setting.value, field.metadata)))
        for path, field in leaves(block)
        for setting in (settings.get(path) or Setting(value=default_of(field), origin="default"),)
    }


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    if isinstance(value, Block):
        members = type(value).members.items()
        return {name: _json(masked(getattr(value, field.name), field.metadata)) for name, field in members}
    return mask_url(value) if isinstance(value, str) and "://" in value else value
