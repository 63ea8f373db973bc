"""`memline fleet`: the processes of a fleet on one host, run or printed for a supervisor."""

from __future__ import annotations

import click

from memline.producers.cli.options import Invocation, command, echo, stop_event


@command(
    "memline --workspace ~/notes fleet",
    "memline fleet --no-api",
    "memline fleet procfile > Procfile",
    "memline fleet compose > compose.yaml",
    cls=click.Group,
    invoke_without_command=True,
)
@click.option("--api/--no-api", default=True, help="Serve memory over HTTP as well.  [default: --api]")
@click.pass_context
def fleet(context: click.Context, invocation: Invocation, api: bool) -> int | None:
    """Run every process of a fleet that the configuration needs, until it is told to stop.

    Without queue.url it starts a redis-server of its own, on a socket below its home. When one process ends,
    all do, and the exit status is 1. SIGINT and SIGTERM end them in order.
    """
    context.obj = api
    if context.invoked_subcommand is not None:
        return None
    import os
    from contextlib import nullcontext
    from dataclasses import replace
    from functools import partial

    from memline.producers.runs import supervisor
    from memline.shared.config import environment

    settings, options, tell = invocation.settings, invocation.options, partial(echo, err=True)
    names = {"config": environment.CONFIG, "home": environment.HOME, "workspace": environment.WORKSPACE}
    chosen = {variable: getattr(options, name) for name, variable in names.items()}
    variables = environment.without_systemd(os.environ)
    variables |= {name: str(path) for name, path in chosen.items() if path is not None}
    url = settings.queue.url
    queue = replace(settings.queue, name=settings.queue.name or environment.fleet_name(settings.home))
    with stop_event() as stop, nullcontext() if url else supervisor.private_redis(settings.home) as redis:
        if redis is not None:
            url = redis.url
            tell(f"memline: other commands reach this fleet with {environment.QUEUE_URL}={url}")
        variables[environment.QUEUE_NAME] = queue.name
        variables = environment.with_secret(variables, environment.QUEUE_URL, url)
        processes = supervisor.commands(invocation.enabled_agents(), with_api=api)
        is_good = supervisor.run(
            processes,
            variables,
            stop=stop,
            tell=tell,
            redis=redis,
            fleet=replace(queue, url=url).address.partition("#")[2],
            systemd=invocation.systemd(),
        )
    return 0 if is_good else 1


@command("memline fleet procfile > Procfile && honcho start", parent=fleet)
def procfile(invocation: Invocation) -> None:
    """Print a Procfile of the processes that the configuration needs."""
    _print("procfile", invocation)


@command("memline fleet systemd", parent=fleet)
def systemd(invocation: Invocation) -> None:
    """Print a systemd unit for each process; its first line is the name of its file."""
    _print("systemd", invocation)


@command("memline fleet compose > compose.yaml", parent=fleet)
def compose(invocation: Invocation) -> None:
    """Print a compose file with a container for each process, and one for Redis."""
    _print("compose", invocation)


def _print(kind: str, invocation: Invocation) -> None:
    """Fill a template of `fleet.toml` for each process."""
    import tomllib
    from pathlib import Path

    from memline.producers.runs.supervisor import commands

    template = tomllib.loads((Path(__file__).parent / "fleet.toml").read_text("utf-8"))[kind]
    text = template.get("head", "")
    with_api = click.get_current_context().obj
    for name, words in commands(invocation.enabled_agents(), with_api=with_api).items():
        command = ", ".join(f'"{word}"' for word in words)
        text += template["each"].format(name=name, words=" ".join(words), command=command)
        text += template.get(name, "")
    click.echo(text + template.get("tail", ""), nl=False)
