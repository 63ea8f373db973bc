"""Prepare an answer: bring changed files into the index, or ask a query worker of the fleet."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import Any

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import Choice
from memline.shared.errors import IndexCorrupt, IndexFault, IndexMissing, IndexOfAnother, QueueError
from memline.shared.index import driver, forgotten, ledger
from memline.shared.scheduling.limits import Limits, minute_limits
from memline.shared.search.request import SearchRequest
from memline.shared.search.staleness import DiskState
from memline.shared.sync.plan import IndexState, Plan, make_plan, read_index_state

#: Seconds a search spends on bringing changed files into the keyword index before it answers; the rest
#: is reported as `stale`. A thousand notes take about one.
CATCH_UP_S = 1.5

#: Milliseconds it waits for another writer meanwhile.
CATCH_UP_BUSY_MS = 500

#: Seconds a command waits for a query worker; after that it reads the index itself.
ANSWER_TIMEOUT_S = 10.0


def catch_up(settings: AgentSettings, choice: Choice, *, clock: Clock, may_write: bool = True) -> DiskState:
    """Look at the files, and with `sync.onSearch` store those that changed; return how many are still behind.

    Their vectors are left to `index` and `up`. `may_write`: False leaves the index to its own writer,
    whatever the settings say. Raises IndexFaults.
    """
    began = time.perf_counter()
    index = IndexState()
    with suppress(IndexMissing), driver.reading(settings.index_path) as reader:
        index = read_index_state(reader)
    may_write = may_write and settings.memory.sync.on_search
    try:
        plan = make_plan(settings, choice, index)
    except IndexOfAnother:
        if not may_write:
            raise
        plan = _plan_own(settings, choice, clock)
    look_s = time.perf_counter() - began
    behind = plan.changes.count
    if plan.changes.to_read() and may_write:
        behind -= _store_changes(settings, plan, clock)
    return DiskState(files_behind=behind, look_s=look_s)


def fleet_limits(settings: Settings, agent: AgentSettings, choice: Choice) -> Limits | None:
    """Return the limits that a question shares with a fleet; None when those of the home count, or none."""
    if not settings.queue.url or not any(minute_limits(agent, choice)):
        return None
    # 90 ms of imports, which only a question that is counted pays. Redis is tried once: a question waits
    # neither for a place nor for Redis.
    from memline.shared.queue.redis_limits import RedisLimits

    return RedisLimits(settings.queue.address)


def ask_fleet(url: str, agent: str, request: SearchRequest, *, index: str = "") -> dict[str, Any] | None:
    """Ask a query worker once; None when none is alive, or it did not answer in time.

    `index` is the file name of the index that is meant. When Redis cannot be reached the caller reads the
    index itself: it is a local file. Raises WorkerRefused for a question that is wrong for every worker.
    """
    # 90 ms of imports, most of them redis, which only a fleet pays.
    from memline.shared.queue.replies import QueryClient, WorkerRefused

    try:
        with QueryClient(url) as client:
            return client.ask(agent, request, timeout_s=ANSWER_TIMEOUT_S, index=index)
    except WorkerRefused:
        raise
    except QueueError as error:
        # Late: logging costs a search 4 ms.
        from memline.shared.logs import Log

        Log("search").warning("queue.unavailable", error=error.message)
        return None


def _plan_own(settings: AgentSettings, choice: Choice, clock: Clock) -> Plan:
    """Move the index of another workspace out of the way, and plan with this workspace's own."""
    from memline.shared.index_writer import IndexWriter

    with closing(IndexWriter.of(settings, clock=clock, busy_timeout_ms=CATCH_UP_BUSY_MS)) as writer:
        return make_plan(settings, choice, read_index_state(writer.connection))


def _store_changes(settings: AgentSettings, plan: Plan, clock: Clock) -> int:
    """Store changed files until the time is over; return how many were done."""
    from memline.shared.index_writer import IndexWriter
    from memline.shared.sync.read_file import FileReader

    reader = FileReader(settings, clock=clock)
    done = 0
    try:
        with closing(IndexWriter.of(settings, clock=clock, busy_timeout_ms=CATCH_UP_BUSY_MS)) as writer:
            until = clock.now() + CATCH_UP_S
            for path in plan.changes.to_read():
                if clock.now() > until:
                    break
                entry = ledger.entry(writer.connection, path)
                gone = forgotten.lines_of(writer.connection, path)
                for row in reader.read(path, entry=entry, forgotten=gone):
                    writer.store_file(row)
                    if clock.now() > until:
                        break
                done += path not in plan.changes.growing and not row.is_partial
    except IndexCorrupt:
        raise
    except IndexFault as error:
        # Read-only, full, or busy with another writer: reading is enough to answer, and the answer says how
        # much it lacks.
        # Late: logging costs a search 4 ms.
        from memline.shared.logs import Log

        Log("search").info("catch_up.failed", error=error.message)
    return done
