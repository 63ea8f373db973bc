"""Follow files until the process is told to stop: with workers in this process, or for those of a fleet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from memline.producers.bridges.qmd.updates import QmdUpdates
from memline.producers.runs.change_lines import ChangeLines
from memline.producers.runs.in_process import INDEXING, InProcessWorkers
from memline.producers.runs.index_run import prepare
from memline.producers.watching.flush_sessions import FlushProducer
from memline.producers.watching.follow import TICK_S, Follower
from memline.producers.watching.loop_errors import LoopErrors
from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import IndexCorrupt
from memline.shared.index.driver import file_id
from memline.shared.index.repair import move_aside
from memline.shared.liveness import Liveness
from memline.shared.logs import Log
from memline.shared.queue import broker

Note = Callable[[str], None]


def watch(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    stop: threading.Event,
    liveness: Liveness | None = None,
) -> None:
    """Follow the files of `agents` and put changes on the queue until `stop` is set.

    Raises QueueError when the queue cannot be used at the start.
    """
    broker.on_redis(settings.queue.address)
    errors, liveness = LoopErrors(), liveness or Liveness()
    flushes = FlushProducer(agents, errors=errors)
    with (
        QmdUpdates(agents) as qmd,
        Follower(agents, errors=errors, on_change=qmd.changed) as follow,
    ):
        follow.log_modes()
        liveness.ready()
        while not stop.wait(TICK_S):
            liveness.alive()
            follow.tick()
            flushes.tick()
            qmd.tick()
        liveness.stopping()


def run(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    stop: threading.Event,
    on_note: Note,
    liveness: Liveness | None = None,
) -> None:
    """Follow the files of `agents` and do the work in this process until `stop` is set.

    A damaged index is moved aside and built again. Raises what keeps it from starting.
    """
    while not stop.is_set():
        found = {agent.index_path: file_id(agent.index_path) for agent in agents}
        try:
            _run(settings, agents, stop, on_note, liveness or Liveness())
        except IndexCorrupt as error:
            damaged = next((each for each in agents if str(each.index_path) in error.message), None)
            if damaged is None:
                raise
            path = damaged.index_path
            # A file that was not there before is the one this process made.
            aside = move_aside(path, SystemClock().now(), found[path] or file_id(path))
            then = f"it was moved to {aside} and" if aside else "it"
            on_note(f"{error.message}; {then} is built again from the files.")


def _run(
    settings: Settings,
    agents: Sequence[AgentSettings],
    stop: threading.Event,
    on_note: Note,
    liveness: Liveness,
) -> None:
    log, errors, logged = Log("up"), LoopErrors(), ""
    for agent in agents:
        choice = prepare(agent, is_asked=False).choice
        reason = f" ({choice.reason})" if choice.reason else ""
        provider = f"{choice.provider} {choice.model}".strip()
        on_note(f"memline: agent {agent.agent} embeds with {provider}{reason}")
    flushes = FlushProducer(agents, errors=errors)
    queues = (*INDEXING, *("flush",) * flushes.is_needed)
    with (
        InProcessWorkers(settings, queues=queues, long_lived=True) as workers,
        QmdUpdates(agents) as qmd,
        Follower(agents, errors=errors, on_change=qmd.changed) as follow,
    ):
        for line in follow.describe():
            on_note(line)
        for agent in agents:
            workers.wake(agent.agent)
        told = [ChangeLines(agent, on_note) for agent in agents]
        liveness.ready()
        while not stop.wait(TICK_S):
            liveness.alive()
            follow.tick()
            flushes.tick()
            qmd.tick()
            for each in told:
                each.tick()
            fault = errors.corrupt or workers.fault()
            if isinstance(fault, IndexCorrupt):
                raise fault
            if fault is not None and str(fault) != logged:
                logged = str(fault)
                log.error("work.failed", error=logged, hint=getattr(fault, "hint", ""))
        liveness.stopping()
