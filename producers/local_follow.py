"""`memline up` without a server: watcher and workers in one process, until it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from producers.bring_up import prepare
from producers.flush import Flushes
from producers.follow import TICK_S, Follow
from producers.one_process import OneProcess
from shared.clock import SystemClock
from shared.config.schema import AgentSettings, Settings
from shared.errors import IndexCorrupt, IndexFault, MemlineError
from shared.index.quarantine import move_aside
from shared.logs import Log


def run(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    stop: threading.Event,
    on_note: Callable[[str], None],
) -> None:
    """Follow the files of `agents` and do the work until `stop` is set.

    A damaged index is moved aside and built again. Raises what keeps it from starting.
    """
    while not stop.is_set():
        try:
            _run(settings, agents, stop, on_note)
        except IndexCorrupt as error:
            for agent in agents:
                if str(agent.index_path) in error.message:
                    aside = move_aside(agent.index_path, SystemClock().now())
                    on_note(f"{error.message}; it was moved to {aside} and is built again from the files.")
                    break
            else:
                raise


def _run(
    settings: Settings,
    agents: Sequence[AgentSettings],
    stop: threading.Event,
    on_note: Callable[[str], None],
) -> None:
    log = Log("up")
    for agent in agents:
        plan = prepare(agent, is_asked=False)
        choice = plan.choice
        words = f"{choice.provider} {choice.model}".strip()
        on_note(
            f"memline: agent {agent.agent} embeds with {words}"
            + (f" ({choice.reason})" * bool(choice.reason))
        )
    flushes = Flushes(agents)
    queues = ("chunk", "store", "embed", "query", *("flush",) * flushes.is_needed)
    with OneProcess(settings, queues=queues, long_lived=True) as process, Follow(agents) as follow:
        for line in follow.describe():
            on_note(line)
        for agent in agents:
            process.wake(agent.agent)
        told = ""
        while not stop.wait(TICK_S):
            flushes.tick()
            fault = _tick(follow) or process.fault()
            if isinstance(fault, IndexCorrupt):
                raise fault
            if fault is not None and str(fault) != told:
                told = str(fault)
                hint = fault.hint if isinstance(fault, MemlineError) else ""
                log.error("work.failed", error=told, hint=hint)


def _tick(follow: Follow) -> IndexFault | None:
    """Look at the files; a disk that is full or an index that is locked now is no reason to end."""
    try:
        follow.tick()
    except IndexFault as error:
        return error
    return None
