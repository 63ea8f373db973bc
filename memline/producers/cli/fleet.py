"""`memline fleet`: the processes of a fleet on one host, run or printed for a supervisor."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click

from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, echo
from memline.producers.cli.long_running import liveness, stop_event, write_log
from memline.producers.cli.table_commands import asks
from memline.producers.runs import supervisor
from memline.producers.runs.supervisor import memline
from memline.shared.config import environment
from memline.shared.config.check import nearest
from memline.shared.queue.routes import PROCESSES, commands
from memline.shared.tables import read_table
from memline.shared.values import replace


@asks(CALLS["fleet"], cls=click.Group, invoke_without_command=True)
def fleet(invocation: Invocation, api: bool) -> int | None:
    context = click.get_current_context()
    context.obj = api
    if context.invoked_subcommand is not None:
        return None

    write_log()
    settings, tell = invocation.settings, partial(echo, err=True)
    variables = environment.without_liveness(os.environ) | _chosen(invocation)
    url = settings.queue.url
    queue = replace(settings.queue, name=settings.queue.name or environment.fleet_name(settings.home))
    with stop_event() as stop, nullcontext() if url else supervisor.private_redis(settings.home) as redis:
        if redis is not None:
            url = redis.url
            tell(f"memline: other commands reach this fleet with {environment.QUEUE_URL}={url}")
        variables[environment.QUEUE_NAME] = queue.name
        variables = environment.with_secret(variables, environment.QUEUE_URL, url)
        processes = commands(invocation.enabled_agents(), with_api=api)
        is_good = supervisor.run(
            processes,
            variables,
            stop=stop,
            tell=tell,
            redis=redis,
            fleet=replace(queue, url=url).address.partition("#")[2],
            liveness=liveness(),
        )
    if redis is not None:
        supervisor.free_leases(invocation.enabled_agents())
    return 0 if is_good else 1


@asks(CALLS["fleet procfile"], parent=fleet)
def procfile(invocation: Invocation) -> None:
    _print("procfile", invocation)


@asks(CALLS["fleet systemd"], parent=fleet)
def systemd(invocation: Invocation, folder: Path | None) -> None:
    program = Path(sys.executable).with_name("memline")
    for name, template in _templates()["systemd"].items():
        text = template.replace("{program}", str(program))
        if folder is None:
            click.echo(f"# {name}\n{text}")
        else:
            (folder / name).write_text(text, "utf-8")
    units = " ".join(f"memline@{name}" for name in _processes(invocation))
    echo(f"# systemctl daemon-reload && systemctl enable --now memline.target {units}")


@asks(CALLS["fleet run"], parent=fleet)
def run(invocation: Invocation, process: str) -> None:
    known = {**PROCESSES, "metrics": ["metrics"], "up": ["up"]}
    words = known.get(process.partition("-")[0])
    if words is None:
        near = nearest(process, known)
        meant = f". Did you mean {near}?" if near else ""
        raise click.BadParameter(f"{process!r} is not one of {', '.join(known)}{meant}", param_hint="PROCESS")
    # The process stays the same one: a supervisor knows it by its pid.
    os.execve(sys.executable, memline(words), {**os.environ, **_chosen(invocation)})


@asks(CALLS["fleet compose"], parent=fleet)
def compose(invocation: Invocation) -> None:
    _print("compose", invocation)


def _print(kind: str, invocation: Invocation) -> None:
    click.echo(filled(kind, _processes(invocation)), nl=False)


def filled(kind: str, processes: dict[str, list[str]]) -> str:
    """Fill a template of `fleet.toml` for each process."""
    template = _templates()[kind]
    text: str = template.get("head", "")
    for name, words in processes.items():
        words = [*words, *template.get("more", {}).get(name, [])]
        command = ", ".join(f'"{word}"' for word in words)
        text += template["each"].format(name=name, words=" ".join(words), command=command)
        text += template.get(name, "")
    return text + str(template.get("tail", ""))


def _processes(invocation: Invocation) -> dict[str, list[str]]:
    """Name the processes that the configuration needs, with the words of their commands."""
    return commands(invocation.enabled_agents(), with_api=click.get_current_context().obj)


def _templates() -> dict[str, Any]:
    return read_table(__file__, "fleet.toml")


def _chosen(invocation: Invocation) -> dict[str, str]:
    """Name the variables that say the same to another process as the global options of this one."""
    names = {"config": environment.CONFIG, "home": environment.HOME, "workspace": environment.WORKSPACE}
    chosen = {variable: getattr(invocation.options, name) for name, variable in names.items()}
    return {variable: str(path) for variable, path in chosen.items() if path is not None}
