"""`memline config` shows the configuration with its origins and checks it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memline.producers.cli.invocation import Invocation, echo, print_json, print_result
from memline.producers.cli.options import AS_JSON, command, group
from memline.shared.config.agents import without_workspace
from memline.shared.config.config_file import default_places, find
from memline.shared.config.keys import Setting
from memline.shared.config.load import examine
from memline.shared.config.show import keys_of_file, shown_for_agent, shown_for_all
from memline.shared.embedders.choice import choose
from memline.shared.embedders.local.downloads import engine_report
from memline.shared.errors import ConfigError
from memline.shared.providers import LISTED, OWN, price_of
from memline.shared.values import asdict
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.shared.config.load import Loaded


@group("memline config show", "memline config check")
def config(_: Invocation) -> None:
    """Show and check the configuration."""


@command(
    "memline config show",
    "memline config show --agent work --json",
    "memline --workspace ~/notes config show --changed",
    parent=config,
)
@click.option("--changed", is_flag=True, help="Only what is set, and not left to its default.")
@AS_JSON
def show(invocation: Invocation, changed: bool, as_json: bool) -> None:
    """Print every value with its origin, secrets hidden."""
    loaded = invocation.loaded
    path, default = loaded.settings.path, loaded.settings.default_agent
    for_all = shown_for_all(loaded)
    by_agent = {agent: shown_for_agent(loaded, agent) for agent in loaded.agent_ids()}
    if changed:
        for_all = _set(for_all)
        by_agent = {agent: _set(mine) for agent, mine in by_agent.items()}
    else:
        by_agent = {
            agent: mine | _engine(loaded, agent) | _price(loaded, agent) for agent, mine in by_agent.items()
        }
    if as_json:
        shown = {agent: {key: asdict(each) for key, each in mine.items()} for agent, mine in by_agent.items()}
        return print_json(
            {
                "path": str(path) if path else None,
                "defaultAgent": default,
                "settings": {key: asdict(each) for key, each in for_all.items()},
                "agents": [{"agentId": agent, "settings": settings} for agent, settings in shown.items()],
            }
        )
    echo(f"file: {path or '(none)'}")
    _print_table(for_all, path)
    for agent, settings in by_agent.items():
        echo(f"\nagent {agent}{' (default)' * (agent == default)}")
        _print_table(settings, path)


def _set(settings: dict[str, Setting]) -> dict[str, Setting]:
    return {
        key: each for key, each in settings.items() if each.origin != "default" and each.value != "(not set)"
    }


@command("memline config path", 'cat "$(memline config path)"', parent=config, name="path")
def show_path(invocation: Invocation) -> int:
    """Print the file that is used; exit status 1 when there is none."""
    file = find(invocation.options.config, os.environ)
    if file is not None:
        echo(str(file))
        return 0
    echo("No configuration file; every key has its default. Looked for:", err=True)
    for place in default_places(os.environ):
        echo(f"  {place}", err=True)
    return 1


@command("memline config check", "memline --config new.json5 config check --json", parent=config)
@AS_JSON
def check(invocation: Invocation, as_json: bool) -> int:
    """Name everything that is wrong; exit status 1 when anything is."""
    found: tuple[ConfigError, ...]
    try:
        loaded = examine(invocation.options)
        file, found, warnings = loaded.settings.path, loaded.problems, list(loaded.warnings)
        keys = len(keys_of_file(loaded))
        count = counted(keys, "key")
    except ConfigError as error:
        # A file that cannot be read at all.
        file, found, warnings, keys = find(invocation.options.config, os.environ), (error,), [], 0
        count = "its keys are not counted"
    problems = [{"problem": each.message, "action": each.hint} for each in found]
    lines = [f"{file}: {count}" if file else "no configuration file"]
    lines += [f"warning: {warning}" for warning in warnings]
    lines += [f"problem: {each['problem']}\n    Try: {each['action']}" for each in problems]
    lines += [] if problems else ["No problems."]
    path = str(file) if file else None
    print_result({"path": path, "keys": keys, "problems": problems, "warnings": warnings}, as_json, lines)
    return 1 if problems else 0


def _engine(loaded: Loaded, agent: str) -> dict[str, Setting]:
    """Say what runs the local model of an agent, or what is missing; empty where none is configured."""
    settings = without_workspace(loaded.settings.agents, agent)
    engine = engine_report(settings, choose(settings).provider)
    if engine is None:
        return {}
    fix = f"; try: {engine['action']}" if engine["error"] else ""
    return {"engine": Setting(value=engine["error"] or engine["version"], origin=f"local.modelPath{fix}")}


def _price(loaded: Loaded, agent: str) -> dict[str, Setting]:
    """Look up the price that a plan for this agent would use; empty where there is none."""
    identity = choose(without_workspace(loaded.settings.agents, agent)).identity
    if identity is None:
        return {}
    own = loaded.settings.prices
    price = price_of(identity.provider, identity.model, public=not identity.endpoint, own=own)
    if price is None:
        return {}
    by_batch = f", {price.batch_per_million:g} by batches" if price.batch_per_million is not None else ""
    names = (f"{identity.provider}/{identity.model}", identity.model)
    written = next((name for name in names if name in loaded.prices), "")
    origin = f"list price of {price.as_of}" if price.source == LISTED else "default"
    if price.source == OWN:
        origin = f"{loaded.settings.path}: prices.{written}"
    text = f"{price.per_million:g} {price.currency} a million tokens{by_batch}"
    return {"price": Setting(value=text, origin=origin)}


def _print_table(settings: dict[str, Setting], path: Path | None) -> None:
    texts = {
        key: each.value if isinstance(each.value, str) and each.value else json.dumps(each.value)
        for key, each in settings.items()
    }
    if not texts:
        echo("  nothing is set")
        return
    key_width = max(map(len, texts))
    value_width = min(40, max(map(len, texts.values())))
    for key, text in texts.items():
        # The file is named above the table.
        origin = settings[key].origin.replace(f"{path}: ", "")
        echo(f"  {key:<{key_width}}  {text:<{value_width}}  {origin}")
