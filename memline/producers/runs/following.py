"""Follow files until the process is told to stop: with workers in this process, or for those of a fleet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress

from memline.producers.bridges.qmd.updates import QmdUpdates
from memline.producers.runs.in_process import local_workers
from memline.producers.runs.index_run import build_again_if_damaged
from memline.producers.runs.parts import Part, run
from memline.producers.watching.flush_sessions import FlushSessions
from memline.producers.watching.follow import Follower
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexCorrupt
from memline.shared.index.hold import FOLLOWER, hold
from memline.shared.index_writer import IndexWriter
from memline.shared.liveness import Liveness
from memline.shared.logs import Log
from memline.shared.queue.broker import send
from memline.shared.queue.messages import Sweep
from memline.shared.sessions.transcripts import transcripts_of

Note = Callable[[str], None]


@contextmanager
def following(
    settings: Settings, agents: Sequence[AgentSettings], *, on_note: Note | None = None
) -> Iterator[Callable[[], None]]:
    """Follow the files of agents and put changes on the queue: a part of a process (`runs.parts`).

    The broker of this process is set before. With `on_note` the work is done in this process, and it says
    what it follows.
    """
    followers = list[Follower]()
    is_old = False
    # `up` moves a damaged index aside itself; for a fleet `index` does it.
    passing = suppress(*[] if on_note else [IndexCorrupt])

    def tick() -> None:
        nonlocal is_old
        for follower in followers:
            with passing:
                follower.tick()
        qmd.tick()
        if not is_old and (file := settings.file.newer()):
            Log("settings").warning("settings.old", file=file)
            is_old = True

    with ExitStack() as stack:
        qmd = stack.enter_context(QmdUpdates(agents))
        stack.enter_context(FlushSessions(agents))
        for agent in agents:
            follower = stack.enter_context(Follower(agent, on_change=qmd.changed))
            followers.append(follower)
            with passing:
                follower.tick()
            mode, sessions = follower.mode(), " and its sessions" if transcripts_of(agent) else ""
            Log("follow").info("files.followed", agent=agent.agent, workspace=agent.workspace, mode=mode)
            if on_note:
                on_note(f"memline: agent {agent.agent} follows {agent.workspace}{sessions}: {mode}")
            kind, path = "up" if on_note else "watch", agent.index_path
            if (lock := hold(path, kind, time.time(), part=FOLLOWER)) is not None:
                stack.callback(lock.close)
            # Rows may wait from before.
            send(Sweep(agent=agent.agent))
        yield tick


def up(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    stop: threading.Event,
    on_note: Note,
    more: Callable[[], Sequence[Part]] = list,
    liveness: Liveness | None = None,
) -> None:
    """Follow the files of `agents` and do the work in this process until `stop` is set.

    `more` makes further parts. A damaged index is moved aside and built again. Raises what keeps it from
    starting.
    """

    def work() -> None:
        for agent in agents:
            with closing(IndexWriter.of(agent)) as writer:
                writer.retry_all()
            choice = choose(agent)
            reason = f" ({choice.reason})" if choice.reason else ""
            provider = f"{choice.provider} {choice.model}".strip()
            on_note(f"memline: agent {agent.agent} embeds with {provider}{reason}")
        workers = local_workers(settings, kind="up")
        run([workers, following(settings, agents, on_note=on_note), *more()], stop, liveness=liveness)

    build_again_if_damaged(agents, work, on_note=on_note)
