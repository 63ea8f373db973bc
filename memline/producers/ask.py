"""Open what answers the questions of an agent: its index, and the look at its files before an answer."""

import time
from contextlib import suppress
from functools import partial

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.errors import IndexMissing, IndexOfAnother
from memline.shared.findings.answerer import Answerer
from memline.shared.index import driver
from memline.shared.sync.plan import IndexState, make_plan, read_index_state
from memline.shared.sync.staleness import DiskState, Staleness


def searching(
    settings: Settings, agent: AgentSettings, *, long_lived: bool, clock: Clock
) -> tuple[Answerer, Staleness]:
    """Open what the searches of an agent need; the caller closes the first."""
    choice, limits, queue = choose(agent), None, settings.queue
    if queue:
        from memline.shared.queue.redis_limits import fleet_limits

        limits = fleet_limits(queue, agent, choice)
    # Beside a fleet a long-lived process leaves the index to the store worker: `watch` enqueues every
    # change. A command writes: it runs only when no query worker is alive.
    may_write = not (long_lived and queue)
    look = partial(catch_up, agent, choice, clock=clock, may_write=may_write)
    search = Answerer(
        agent,
        choice=choice,
        long_lived=long_lived,
        limits=limits,
        queue=queue,
        clock=clock,
    )
    return search, Staleness(look)


def catch_up(settings: AgentSettings, choice: Choice, *, clock: Clock, may_write: bool = True) -> DiskState:
    """Look at the files, and with `sync.onSearch` store those that changed; return how many are still behind.

    Their vectors are left to `index` and `up`. `may_write`: False leaves the index to its own writer,
    whatever the settings say. Raises IndexFaults.
    """
    began = time.thread_time()
    index = IndexState()
    with suppress(IndexMissing), driver.reading(settings.index_path) as reader:
        index = read_index_state(reader)
    may_write = may_write and settings.memory.sync.on_search
    try:
        plan = make_plan(settings, choice, index)
    except IndexOfAnother:
        if not may_write:
            raise
        from memline.producers.store_changes import plan_own

        plan = plan_own(settings, choice, clock)
    look_s = time.thread_time() - began
    behind = plan.changes.count
    if may_write and plan.changes.to_read():
        from memline.producers.store_changes import store_changes

        behind -= store_changes(settings, plan, clock)
    removed = min(len(plan.changes.removed), behind)
    return DiskState(files_behind=behind, removed=removed, look_s=look_s, emptied=plan.emptied)
