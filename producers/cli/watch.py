"""`memline watch`: the producer process of the fleet."""

from __future__ import annotations

import click

from producers.cli.options import Invocation, examples, global_options


@click.command(epilog=examples("MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline watch"))
@global_options
def watch(invocation: Invocation) -> None:
    """Follow the files and put their changes on the queue; the workers are other processes.

    Needs queue.url. Without a queue, `memline up` does this and the work in one process.
    """
    from producers.cli.signals import stop_event
    from producers.flush import Flushes
    from producers.follow import TICK_S, Follow
    from shared import logs
    from shared.config import environment
    from shared.errors import QueueError
    from shared.queue import broker

    # One of the processes of a fleet: its lines look like theirs, and are as many.
    logs.configure(*environment.log_options(default="INFO"))
    url = invocation.settings.queue.url
    if not url:
        raise QueueError("watch puts work on a queue, and no queue.url is set", hint="memline up")
    broker.on_redis(url)
    agents = [settings for settings in invocation.agents() if settings.memory.enabled]
    with stop_event() as stop, Follow(agents) as follow:
        follow.log_modes()
        flushes = Flushes(agents)
        while not stop.wait(TICK_S):
            follow.tick()
            flushes.tick()
