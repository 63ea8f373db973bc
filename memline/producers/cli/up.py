"""`memline up`, `watch` and `worker`: processes that work until they are told to stop."""

import click

from memline.producers.cli.index import fetch_model
from memline.producers.cli.invocation import Invocation, command
from memline.producers.cli.output import note
from memline.producers.cli.serve import liveness, of_service, server_of, stop_event
from memline.producers.runs import following
from memline.producers.runs.parts import Part, run
from memline.shared.config.installation import mask_url
from memline.shared.errors import QueueError
from memline.shared.queue.redis_broker import on_redis
from memline.shared.queue.routes import QUEUES
from memline.workers.process import fleet_worker


@command(
    "memline --workspace ~/notes up", "memline up --serve", "MEMLINE_LOG_LEVEL=INFO memline up --agent main"
)
@click.option("--serve", "serves", is_flag=True, help="Serve HTTP, MCP and the dashboard too.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port of --serve.  [default: 7843]")
def up(invocation: Invocation, serves: bool, port: int | None) -> None:
    """Run everything in one process, no server needed: follow the files, chunk, embed, store.

    Searches of other processes see changes at once. SIGINT and SIGTERM end it after the running work. A
    second one for the same folder follows its files, and sends texts to the provider once the first has
    ended. With queue.url set it is refused: jobs would wait in Redis for workers.
    """
    invocation = of_service(invocation)
    if queue := invocation.settings.queue:
        hint = "unset MEMLINE_QUEUE_URL or queue.url; or run the fleet: honcho start, with the Procfile"
        raise QueueError(f"up works without a queue, and queue.url is {mask_url(queue.url)}", hint=hint)
    agents = invocation.enabled_agents()
    for agent in agents:
        fetch_model(agent)
    stop = stop_event()

    def more() -> list[Part]:
        return [server_of(invocation, port=port, is_alone=False)] if serves else []

    following.up(invocation.settings, agents, stop=stop, on_note=note, more=more, liveness=liveness())


def _of_fleet(invocation: Invocation) -> Invocation:
    """Return the invocation of a process of a fleet. Raises QueueError without a queue."""
    invocation = of_service(invocation, level="INFO")
    if not invocation.settings.queue.url:
        raise QueueError("it works with a queue, and no queue.url is set", hint="memline up")
    return invocation


@command("MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline watch")
def watch(invocation: Invocation) -> None:
    """Follow the files and put their changes on the queue; the workers are other processes.

    Needs queue.url. Without a queue, `memline up` does this and the work in one process.
    """
    settings = (invocation := _of_fleet(invocation)).settings
    stop = stop_event()
    on_redis(settings.queue)
    run([following.following(settings, invocation.enabled_agents())], stop, liveness=liveness())


@command(
    "memline worker embed --threads 16",
    "memline worker chunk store query",
    "MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline worker embed",
)
@click.argument("roles", nargs=-1, required=True, metavar="ROLE...", type=click.Choice(list(QUEUES)))
@click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="Messages a role works on at a time; store keeps one."
    f"  [default: {', '.join(f'{name} {count}' for name, count in QUEUES.items())}]",
)
def worker(invocation: Invocation, roles: tuple[str, ...], threads: int | None) -> None:
    """Work on messages of the queue, in one role or several: chunk, embed, batch, store, query.

    Needs queue.url. SIGINT and SIGTERM end it: running messages are finished, for up to 15 seconds, and the
    others go back on the queue. A second signal changes nothing, a third ends it at once.
    """
    settings = _of_fleet(invocation).settings
    threads_of = {role: QUEUES[role] if role == "store" or threads is None else threads for role in roles}
    stop = stop_event()
    run([fleet_worker(settings, threads_of, stop)], stop, liveness=liveness())
