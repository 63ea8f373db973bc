"""`memline up`: the whole pipeline in one process, following the files until it is told to stop."""

from __future__ import annotations

import click

from producers.cli.options import Invocation, examples, global_options


@click.command(
    epilog=examples("memline --workspace ~/notes up", "MEMLINE_LOG_LEVEL=INFO memline up --agent main")
)
@global_options
def up(invocation: Invocation) -> None:
    """Run everything in one process, no server needed: follow the files, chunk, embed, store.

    Searches of other processes see changes at once. SIGINT and SIGTERM end it after the running work.
    """
    from producers.cli.progress import fetch_model
    from producers.cli.signals import stop_event
    from producers.local_follow import run

    invocation.log()
    agents = [settings for settings in invocation.agents() if settings.memory.enabled]
    for agent in agents:
        fetch_model(agent)
    with stop_event() as stop:
        run(invocation.settings, agents, stop=stop, on_note=lambda text: click.echo(text, err=True))
