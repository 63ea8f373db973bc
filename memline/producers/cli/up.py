"""`memline up`, `watch` and `worker`: processes that work until they are told to stop."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from memline.producers.calls.table import CALLS
from memline.producers.cli.index import fetch_model
from memline.producers.cli.invocation import Invocation, echo
from memline.producers.cli.long_running import listed, liveness, stop_event, write_log
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
    settings, note = invocation.settings, partial(echo, err=True)
    with (
        stop_event() as stop,
        listed(invocation, "up", agents),
        sampling(lambda: settings),
    ):
        following.run(settings, agents, stop=stop, on_note=note, liveness=liveness())


@asks(CALLS["watch"])
def watch(invocation: Invocation) -> None:
    # A process of a fleet: it logs what workers log, and at their level.
    write_log(default_level="INFO")
    if not invocation.settings.queue.url:
        raise QueueError("watch puts work on a queue, and no queue.url is set", hint="memline up")
    agents = invocation.enabled_agents()
    with stop_event() as stop, listed(invocation, "watch", agents):
        following.watch(invocation.settings, agents, stop=stop, liveness=liveness())


@asks(CALLS["worker"])
def worker(invocation: Invocation, roles: tuple[str, ...], threads: int | None) -> None:
    write_log(default_level="INFO")
    threads_of = {
        role: QUEUES[role].threads if QUEUES[role].is_single or threads is None else threads for role in roles
    }
    settings = invocation.settings
    # One of the processes beside an index, which there is once.
    samples = sampling(lambda: settings) if "store" in threads_of else nullcontext()
    with stop_event() as stop, samples:
        lifecycle.run(settings, threads_of, stop, liveness=liveness())
