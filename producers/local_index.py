"""An index run from a command: by workers of this process that end with it, or by those of a fleet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from producers.bring_up import Progress, Report, Run, prepare
from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings, Settings
from shared.errors import IndexCorrupt
from shared.index.plan import Plan
from shared.index.quarantine import move_aside


def bring_up_to_date(
    settings: Settings,
    agent: AgentSettings,
    *,
    force: bool = False,
    re_embed: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_plan: Callable[[Plan], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
    clock: Clock | None = None,
) -> Report:
    """Make the index of `agent` agree with the disk and embed what is missing; a report when all is settled.

    A damaged index is moved aside and built again from the files, once. Raises IndexFaults.
    """
    clock = clock or SystemClock()
    try:
        return _bring_up(settings, agent, force, re_embed, on_progress, on_plan, clock)
    except IndexCorrupt as error:
        aside = move_aside(agent.index_path, clock.now())
        on_note(f"{error.message}; it was moved to {aside}, and the index is built again from the files.")
        return _bring_up(settings, agent, force, re_embed, on_progress, on_plan, clock)


def _bring_up(
    settings: Settings,
    agent: AgentSettings,
    force: bool,
    re_embed: bool,
    on_progress: Callable[[Progress], None],
    on_plan: Callable[[Plan], None],
    clock: Clock,
) -> Report:
    started_ns = clock.now_ns()
    plan = prepare(agent, re_embed=re_embed, clock=clock)
    on_plan(plan)
    files = plan.files(force=force)
    url = settings.queue.url
    with closing(Run(agent, plan, started_ns=started_ns, is_fleet=bool(url), clock=clock)) as run:
        if files or plan.known.backlog.pending or plan.known.open_batches:
            # Imported only when there is work: a run that finds nothing stays cheap.
            from producers.feed import Feed
            from producers.fleet import Fleet
            from producers.one_process import OneProcess

            with Fleet(url) if url else OneProcess(settings, clock=clock) as workers:
                workers.wake(agent.agent)
                feed = Feed(agent.agent, files, looked_ns=started_ns, force=force)
                run.wait(feed, on_progress=on_progress, fault=workers.fault)
        return run.report()
