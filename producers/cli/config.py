"""`memline config`: the resolved configuration with every value's origin, its file, and its faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.load import Loaded
    from shared.config.show import Shown


@click.group(epilog=examples("memline config show", "memline config check"))
def config() -> None:
    """Show and check the configuration."""


@config.command(
    epilog=examples(
        "memline config show",
        "memline config show --agent work --json",
        "memline --workspace ~/notes config show",
    )
)
@json_option
@global_options
def show(invocation: Invocation, as_json: bool) -> None:
    """Print every value with its origin, secrets hidden."""
    from shared.config.show import shown_for_agent, shown_for_all

    loaded = invocation.loaded
    for_all = shown_for_all(loaded)
    by_agent = {agent: shown_for_agent(loaded, agent) | _price(loaded, agent) for agent in loaded.agent_ids()}
    path = loaded.settings.path
    if as_json:
        print_json(
            {
                "path": str(path) if path else None,
                "defaultAgent": loaded.settings.default_agent,
                "settings": _as_json(for_all),
                "agents": [
                    {"agentId": agent, "settings": _as_json(shown)} for agent, shown in by_agent.items()
                ],
            }
        )
        return
    click.echo(f"file: {path or '(none)'}")
    _print_table(for_all, path)
    for agent, shown in by_agent.items():
        is_default = " (default)" if agent == loaded.settings.default_agent else ""
        click.echo(f"\nagent {agent}{is_default}")
        _print_table(shown, path)


@config.command("path", epilog=examples("memline config path", 'cat "$(memline config path)"'))
@global_options
def show_path(invocation: Invocation) -> int:
    """Print the file that is used; exit status 1 when there is none."""
    import os

    from shared.config.files import default_places, find

    found = find(invocation.options.config, os.environ)
    if found is not None:
        click.echo(found)
        return 0
    click.echo("No configuration file; every key has its default. Looked for:", err=True)
    for place in default_places(os.environ):
        click.echo(f"  {place}", err=True)
    return 1


@config.command(epilog=examples("memline config check", "memline --config new.json5 config check --json"))
@json_option
@global_options
def check(invocation: Invocation, as_json: bool) -> int:
    """Tell everything that is wrong; exit status 1 when anything is."""
    from shared.config.load import examine
    from shared.config.show import keys_of_file

    loaded = examine(invocation.options)
    file = loaded.settings.path
    written = keys_of_file(loaded)
    if as_json:
        print_json(
            {
                "path": str(file) if file else None,
                "keys": len(written),
                "problems": [{"problem": found.message, "action": found.hint} for found in loaded.problems],
                "warnings": list(loaded.warnings),
            }
        )
    else:
        click.echo(f"{file}: {len(written)} keys" if file else "no configuration file")
        for warning in loaded.warnings:
            click.echo(f"warning: {warning}")
        for found in loaded.problems:
            click.echo(f"problem: {found.message}\n    Try: {found.hint}")
        if not loaded.problems:
            click.echo("No problems.")
    return 1 if loaded.problems else 0


def _price(loaded: Loaded, agent: str) -> dict[str, Shown]:
    """The price that a plan for this agent would use; nothing where nothing embeds or nobody knows it."""
    from shared.config.resolve import away_from_files
    from shared.config.show import Shown
    from shared.embedders.choice import choose
    from shared.embedders.prices import LISTED, OWN, price_of

    identity = choose(away_from_files(loaded.settings.agents, agent)).identity
    price = price_of(identity, loaded.settings.prices) if identity else None
    if identity is None or price is None:
        return {}
    by_batch = f", {price.batch_per_million:g} by batches" if price.batch_per_million is not None else ""
    spellings = (f"{identity.provider}/{identity.model}", identity.model)
    names = [name for name in spellings if name in loaded.price_leaves]
    origins = {
        OWN: f"{loaded.settings.path}: prices.{names[0]}" if names else "",
        LISTED: f"list price of {price.as_of}",
    }
    text = f"{price.per_million:g} {price.currency} a million tokens{by_batch}"
    return {"price": Shown(value=text, origin=origins.get(price.source, "default"))}


def _as_json(shown: dict[str, Shown]) -> dict[str, Any]:
    return {key: {"value": found.value, "origin": found.origin} for key, found in shown.items()}


def _print_table(shown: dict[str, Shown], path: Path | None) -> None:
    import json

    texts = {
        key: found.value if isinstance(found.value, str) and found.value else json.dumps(found.value)
        for key, found in shown.items()
    }
    key_width = max(map(len, texts))
    value_width = min(40, max(map(len, texts.values())))
    for key, text in texts.items():
        # The file stands above the table.
        origin = shown[key].origin.replace(f"{path}: ", "")
        click.echo(f"  {key:<{key_width}}  {text:<{value_width}}  {origin}")
