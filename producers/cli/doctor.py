"""`memline doctor`: problems, each with the command that fixes it."""

from __future__ import annotations

import click

from memline.producers.cli.options import Invocation, command, echo, print_json, printable

_MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "problem": ("FAIL", "red")}


@command("memline doctor", "memline doctor --deep", "memline doctor --json", json=True)
@click.option("--deep", is_flag=True, help="Ask each provider for one vector, to see that it works.")
def doctor(invocation: Invocation, deep: bool, as_json: bool) -> int | None:
    """Find problems of the installation and of each agent's memory, with the command that fixes each."""
    from memline.producers.reports.doctor import Finding, examine_agent, examine_installation
    from memline.shared.errors import MemlineError

    findings = list(examine_installation())
    try:
        for text in invocation.loaded.warnings:
            findings.append(Finding(level="warning", what=text, fix="memline config check"))
        for settings in invocation.agents():
            findings.extend(examine_agent(settings, deep=deep))
    except MemlineError as error:
        findings.append(Finding(level="problem", what=error.message, fix=error.hint))
    findings = [finding._replace(fix=invocation.as_typed(finding.fix)) for finding in findings]
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            mark, color = _MARKS[finding.level]
            click.echo(f"{click.style(f'{mark:<5}', fg=color)}{printable(finding.what)}")
            if finding.fix:
                echo(f"     try: {finding.fix}")
    return 1 if any(finding.level == "problem" for finding in findings) else None
