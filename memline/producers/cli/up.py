"""`memline up`, `watch` and `worker`: processes that work until they are told to stop."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from memline.producers.calls.table import CALLS
from memline.producers.cli.command_server import answering
from memline.producers.cli.index import fetch_model
from memline.producers.cli.invocation import Invocation, echo
from memline.producers.cli.long_running import listed, liveness, start_again, stop_event, watch_of, write_log
from memline.producers.cli.table_commands import asks
from memline.producers.runs import following
from memline.shared.errors import QueueError
from memline.shared.queue.routes import QUEUES
from memline.shared.sampling import sampling
from memline.workers import lifecycle


@asks(CALLS["up"])
def up(invocation: Invocation) -> None:
    write_log()
    agents = invocation.enabled_agents()
    for agent in agents:
        fetch_model(agent)
    seen, note = watch_of(invocation), partial(echo, err=True)
    with stop_event() as stop:
        with (
            listed(invocation, "up", agents, seen),
            sampling(lambda: seen.settings),
            answering(invocation.settings.home),
        ):
            changed = following.run(
                invocation.settings, agents, stop=stop, on_note=note, liveness=liveness(), watch=seen
            )
        start_again(changed, stop)


@asks(CALLS["watch"])
def watch(invocation: Invocation) -> None:
    # A process of a fleet: it logs what workers log, and at their level.
    write_log(default_level="INFO")
    if not invocation.settings.queue.url:
        raise QueueError("watch puts work on a queue, and no queue.url is set", hint="memline up")
    agents = invocation.enabled_agents()
    seen = watch_of(invocation)
    with stop_event() as stop:
        with listed(invocation, "watch", agents, seen):
            changed = following.watch(invocation.settings, agents, stop=stop, liveness=liveness(), watch=seen)
        start_again(changed, stop)


@asks(CALLS["worker"])
def worker(invocation: Invocation, roles: tuple[str, ...], threads: int | None) -> None:
    write_log(default_level="INFO")
    threads_of = {
        role: QUEUES[role].threads if QUEUES[role].is_single or threads is None else threads for role in roles
    }
    with stop_event() as stop:
        seen = watch_of(invocation)
        # One of the processes beside an index, which there is once.
        with sampling(lambda: seen.settings) if "store" in threads_of else nullcontext():
            changed = lifecycle.run(invocation.settings, threads_of, stop, liveness=liveness(), watch=seen)
        start_again(changed, stop)
