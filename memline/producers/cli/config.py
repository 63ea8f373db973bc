"""`memline config` shows the merged configuration and checks it."""

import os
from typing import Any

import msgspec

from memline.producers.cli.invocation import AS_JSON, Invocation, command, group
from memline.producers.cli.output import print_json, print_result
from memline.shared.config.agents import Settings
from memline.shared.config.config_file import default_places, find
from memline.shared.config.installation import visible
from memline.shared.config.load import load
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import ConfigError


@group("memline config show", "memline config check")
def config(_: Invocation) -> None:
    """Show and check the configuration."""


@command("memline config show", "memline config show --agent work --json", parent=config)
@AS_JSON
def show(invocation: Invocation, **_: bool) -> None:
    """Print the merged configuration as JSON, secrets hidden."""
    print_json(shown(invocation.settings))


@command("memline config check", "memline --config new.json5 config check --json", parent=config)
@AS_JSON
def check(invocation: Invocation, as_json: bool) -> int:
    """Name the file that is used, the first thing that is wrong (exit status 1), and what has no effect."""
    file, problems, warnings = find(invocation.options.config, os.environ), [], list[str]()
    try:
        warnings = list(load(invocation.options).warnings)
    except ConfigError as error:
        problems = [{"problem": error.message, "action": error.hint}]
    lines = [str(file or f"no configuration file, it would be {default_places(os.environ)[0]}")]
    lines += [f"warning: {warning}" for warning in warnings]
    lines += [f"problem: {each['problem']}\n    Try: {each['action']}" for each in problems]
    answer = {"path": str(file) if file else None, "problems": problems, "warnings": warnings}
    print_result(answer, as_json, lines if problems else [*lines, "No problems."])
    return 1 if problems else 0


def shown(settings: Settings) -> dict[str, Any]:
    """Return the merged configuration in the words of JSON, secrets hidden."""
    file = visible(msgspec.to_builtins(settings.content))
    defaults = file.pop("agents")["defaults"]
    providers = file.pop("models")["providers"]
    return {
        "path": str(settings.path) if settings.path else None,
        "home": str(settings.home),
        "stateDir": str(settings.agents[settings.default_agent].state_dir),
        "defaultAgent": settings.default_agent,
        "agents": [_agent(settings.agents[agent]) for agent in settings.chosen_ids()],
        "defaults": defaults,
        **file,
        "providers": providers,
    }


def _agent(agent: AgentSettings) -> dict[str, Any]:
    fault = agent.workspace_fault
    return {
        "agentId": agent.agent,
        "workspace": "(not set)" if fault else str(agent.workspace),
        "workspaceOrigin": fault.message if fault else agent.workspace_origin,
        "indexPath": str(agent.index_path),
        "memorySearch": visible(msgspec.to_builtins(agent.memory)),
    }
