"""`memline worker`: the worker roles of a fleet."""

from __future__ import annotations

import click

from memline.producers.cli.options import Invocation, command, stop_event
from memline.shared.queue.routes import QUEUES


@command(
    "memline worker embed --threads 16",
    "memline worker chunk store query",
    "MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline worker embed",
)
@click.argument("roles", metavar="ROLE...", nargs=-1, required=True, type=click.Choice(list(QUEUES)))
@click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(min=1),
    help=f"Messages a role works on at a time; store keeps one.  [default: "
    f"{', '.join(f'{name} {queue.threads}' for name, queue in QUEUES.items())}]",
)
def worker(invocation: Invocation, roles: tuple[str, ...], threads: int | None) -> None:
    """Work on messages of the queue, in one role or several: chunk, embed, batch, store, query, flush.

    Needs queue.url. SIGINT and SIGTERM end it: running messages are finished, for up to 15 seconds, and the
    others go back on the queue. A second signal changes nothing, a third ends it at once.
    """
    from memline.workers.lifecycle import run

    invocation.log(default_level="INFO")
    threads_of = {
        role: QUEUES[role].threads if QUEUES[role].is_single or threads is None else threads for role in roles
    }
    with stop_event() as stop:
        run(invocation.settings, threads_of, stop, liveness=invocation.liveness())
