"""`memline up` and `memline watch`: follow the files until the process is told to stop."""

from __future__ import annotations

from memline.producers.cli.options import Invocation, command, echo, stop_event


@command("memline --workspace ~/notes up", "MEMLINE_LOG_LEVEL=INFO memline up --agent main")
def up(invocation: Invocation) -> None:
    """Run everything in one process, no server needed: follow the files, chunk, embed, store.

    Searches of other processes see changes at once. SIGINT and SIGTERM end it after the running work.
    """
    from functools import partial

    from memline.producers.cli.index import fetch_model
    from memline.producers.runs.up import run

    invocation.log()
    agents = invocation.enabled_agents()
    for agent in agents:
        fetch_model(agent)
    with stop_event() as stop:
        note = partial(echo, err=True)
        run(invocation.settings, agents, stop=stop, on_note=note, liveness=invocation.liveness())


@command("MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline watch")
def watch(invocation: Invocation) -> None:
    """Follow the files and put their changes on the queue; the workers are other processes.

    Needs queue.url. Without a queue, `memline up` does this and the work in one process.
    """
    from memline.producers.runs.up import watch as follow
    from memline.shared.errors import QueueError

    # A process of a fleet: it logs what workers log, and at their level.
    invocation.log(default_level="INFO")
    if not invocation.settings.queue.url:
        raise QueueError("watch puts work on a queue, and no queue.url is set", hint="memline up")
    with stop_event() as stop:
        agents = invocation.enabled_agents()
        follow(invocation.settings, agents, stop=stop, liveness=invocation.liveness())
