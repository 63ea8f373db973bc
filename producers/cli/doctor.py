"""`memline doctor`: problems, each with the command that fixes it."""

from __future__ import annotations

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json

_MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "problem": ("FAIL", "red")}


@click.command(epilog=examples("memline doctor", "memline doctor --json"))
@json_option
@global_options
def doctor(invocation: Invocation, as_json: bool) -> int | None:
    """Find problems of the installation and of each agent's memory, with the command that fixes each."""
    from producers.doctor import Finding, examine_agent, examine_installation
    from shared.errors import MemlineError

    found: list[Finding] = list(examine_installation())
    try:
        found.extend(
            Finding(level="warning", what=text, fix="memline config check")
            for text in invocation.loaded.warnings
        )
        for settings in invocation.agents():
            found.extend(examine_agent(settings))
    except MemlineError as error:
        found.append(Finding(level="problem", what=error.message, fix=error.hint))
    if as_json:
        print_json([finding.to_json() for finding in found])
    else:
        for finding in found:
            mark, color = _MARKS[finding.level]
            click.echo(f"{click.style(f'{mark:<5}', fg=color)}{finding.what}")
            if finding.fix:
                click.echo(f"     try: {finding.fix}")
    return 1 if any(finding.level == "problem" for finding in found) else None
