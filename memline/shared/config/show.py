"""Show the merged configuration without its secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memline.shared.config.agents import without_workspace
from memline.shared.config.keys import Block, mask_url, masked
from memline.shared.config.load import Loaded
from memline.shared.errors import ConfigError


def shown(loaded: Loaded) -> dict[str, Any]:
    """Return the merged configuration in the words of JSON, secrets hidden."""
    context, settings = loaded.context, loaded.settings
    file = {name: each for name, each in _json(context.file).items() if name != "agents"}
    return {
        "path": str(settings.path) if settings.path else None,
        "home": str(settings.home),
        "stateDir": str(context.state_dir),
        "defaultAgent": settings.default_agent,
        "agents": [_agent(loaded, agent) for agent in loaded.agent_ids()],
        "defaults": _json(context.file.agents.defaults),
        **file,
        "prices": _json(settings.prices),
        "providers": _json(context.providers),
    }


def _agent(loaded: Loaded, agent: str) -> dict[str, Any]:
    try:
        place = loaded.context.workspace(agent)
        workspace, origin = str(place.path), place.origin
    except ConfigError as error:
        workspace, origin = "(not set)", error.message
    return {
        "agentId": agent,
        "workspace": workspace,
        "workspaceOrigin": origin,
        "indexPath": str(loaded.context.index_path(agent)),
        "memorySearch": _json(without_workspace(loaded.settings.agents, agent).memory),
    }


def lines(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Write a tree as `path  value`, a line a value."""
    found = []
    for name, each in tree.items():
        path = f"{prefix}{name}"
        if isinstance(each, dict):
            found += lines(each, f"{path}.")
        elif isinstance(each, list) and each and isinstance(each[0], dict):
            for number, item in enumerate(each):
                found += lines(item, f"{path}[{number}].")
        else:
            found.append(f"{path:<48}  {each if isinstance(each, str) and each else json.dumps(each)}")
    return found


def _json(value: Any) -> Any:
    if isinstance(value, Block):
        members = type(value).members.items()
        return {name: _json(masked(getattr(value, field.name), field.metadata)) for name, field in members}
    if isinstance(value, Mapping):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    return mask_url(value) if isinstance(value, str) and "://" in value else value
