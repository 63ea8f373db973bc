"""Show the merged configuration without its secrets."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from memline.shared.config.agents import without_workspace
from memline.shared.config.installation import visible
from memline.shared.config.load import Loaded
from memline.shared.errors import ConfigError


def shown(loaded: Loaded) -> dict[str, Any]:
    """Return the merged configuration in the words of JSON, secrets hidden."""
    setup, settings = loaded.resolver.setup, loaded.settings
    file = visible(msgspec.to_builtins(setup.file))
    for name in ("agents", "memorySearch", "models", "prices"):
        del file[name]
    del file["memory"]["search"]
    defaults = visible(msgspec.to_builtins(setup.file.agents.defaults))
    del defaults["memorySearch"]
    return {
        "path": str(settings.path) if settings.path else None,
        "home": str(settings.home),
        "stateDir": str(setup.state_dir),
        "defaultAgent": settings.default_agent,
        "agents": [_agent(loaded, agent) for agent in loaded.agent_ids()],
        "defaults": defaults,
        **file,
        "prices": settings.prices,
        "providers": visible(msgspec.to_builtins(setup.file.models.providers)),
    }


def _agent(loaded: Loaded, agent: str) -> dict[str, Any]:
    try:
        workspace, origin = map(str, loaded.resolver.workspace(agent))
    except ConfigError as error:
        workspace, origin = "(not set)", error.message
    return {
        "agentId": agent,
        "workspace": workspace,
        "workspaceOrigin": origin,
        "indexPath": str(loaded.resolver.index_path(agent)),
        "memorySearch": visible(msgspec.to_builtins(without_workspace(loaded.settings.agents, agent).memory)),
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
