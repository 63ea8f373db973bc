"""`memline config` shows the merged configuration and checks it."""

import os

from memline.producers.cli.invocation import Invocation
from memline.producers.cli.options import AS_JSON, command, group
from memline.producers.cli.output import echo, print_result
from memline.shared.config.config_file import default_places, find
from memline.shared.config.load import load
from memline.shared.config.show import lines, shown
from memline.shared.errors import ConfigError


@group("memline config show", "memline config check")
def config(_: Invocation) -> None:
    """Show and check the configuration."""


@command("memline config show", "memline config show --agent work --json", parent=config)
@AS_JSON
def show(invocation: Invocation, as_json: bool) -> None:
    """Print the merged configuration, secrets hidden."""
    answer = shown(invocation.loaded)
    print_result(answer, as_json, lines(answer))


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
    """Name the first thing that is wrong, with exit status 1, and all that has no effect."""
    file, problems, warnings = find(invocation.options.config, os.environ), [], list[str]()
    try:
        warnings = list(load(invocation.options).warnings)
    except ConfigError as error:
        problems = [{"problem": error.message, "action": error.hint}]
    said = [str(file) if file else "no configuration file"]
    said += [f"warning: {warning}" for warning in warnings]
    said += [f"problem: {each['problem']}\n    Try: {each['action']}" for each in problems]
    said += [] if problems else ["No problems."]
    answer = {"path": str(file) if file else None, "problems": problems, "warnings": warnings}
    print_result(answer, as_json, said)
    return 1 if problems else 0
