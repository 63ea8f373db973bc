"""A search from a command: first the changed files, then the question, straight from the index file."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings, Settings
from shared.embedders.choice import Choice, choose
from shared.errors import IndexCorrupt, IndexFault, IndexMissing
from shared.index import driver
from shared.index.plan import Known, Plan, ledger_of, look
from shared.search.results import Answer, SearchRequest
from shared.search.service import MemorySearch
from shared.values import value

#: Seconds a search spends on bringing changed files into the keyword index before it answers; the rest
#: is told as `stale`. A thousand notes take about one.
CATCH_UP_S = 1.5

#: Milliseconds it waits for another writer meanwhile.
CATCH_UP_BUSY_MS = 500


@value
class DiskState:
    """How the index stands to the files, as an answer tells it."""

    files_behind: int = 0
    warning: str = ""
    action: str = ""
    #: Seconds it took to find that out, without what was stored.
    look_s: float = 0.0


def answer(settings: Settings, agent: AgentSettings, request: SearchRequest) -> dict[str, Any]:
    """The answer to a question as JSON: from a query worker when one is alive, else from the index directly.

    Raises IndexFaults, ConfigError, and QueueError for a question the worker refuses.
    """
    if settings.queue.url:
        from producers.ask_fleet import ask_fleet

        found = ask_fleet(settings.queue.url, agent.agent, request)
        if found is not None:
            return found
    return ask(agent, request).to_json()


def ask(settings: AgentSettings, request: SearchRequest, *, clock: Clock | None = None) -> Answer:
    """Answer a question for an agent.

    With `sync.onSearch`, files that changed since the last run are chunked and stored first, so that they are
    found at once; their vectors are left to `index` and `up`. Raises IndexFaults and ConfigError.
    """
    clock = clock or SystemClock()
    choice = choose(settings)
    state = bring_in(settings, choice, clock=clock)
    with closing(MemorySearch(settings, choice=choice, clock=clock)) as memory:
        return memory.ask(
            request, files_behind=state.files_behind, warning=state.warning, action=state.action
        )


def bring_in(settings: AgentSettings, choice: Choice, *, clock: Clock, may_write: bool = True) -> DiskState:
    """Look at the files, and with `sync.onSearch` store those that changed; says how many are still behind.

    `may_write`: False leaves the index to its own writer, whatever the settings say.
    """
    began = time.perf_counter()
    plan = look(settings, choice, _known(settings))
    took_s = time.perf_counter() - began
    behind = plan.changes.count
    if plan.known.workspace not in ("", str(settings.workspace)):
        return DiskState(
            files_behind=behind,
            warning=f"this index is of another workspace, {plan.known.workspace}; hits come from there",
            action=f"memline --workspace {settings.workspace} index",
            look_s=took_s,
        )
    if plan.changes.announced() and settings.memory.sync.on_search and may_write:
        behind -= _catch_up(settings, plan, clock)
    return DiskState(files_behind=behind, look_s=took_s)


def _known(settings: AgentSettings) -> Known:
    try:
        with driver.reading(settings.index_path) as reader:
            return ledger_of(reader)
    except IndexMissing:
        return Known()


def _catch_up(settings: AgentSettings, plan: Plan, clock: Clock) -> int:
    """Store changed files until the time is over; returns how many were done."""
    from shared.index import ledger, meta
    from shared.index.intake import Intake
    from shared.index.writer import IndexWriter

    until = clock.now() + CATCH_UP_S
    intake = Intake(settings, clock=clock)
    done = 0
    try:
        with closing(IndexWriter.of(settings, clock=clock, busy_timeout_ms=CATCH_UP_BUSY_MS)) as writer:
            writer.put_meta(meta.WORKSPACE, str(settings.workspace))
            for path in plan.changes.announced():
                if clock.now() > until:
                    break
                for row in intake.look(path, known=ledger.entry(writer.connection, path)):
                    writer.store_file(row)
                    if clock.now() > until:
                        break
                done += path not in plan.changes.growing and not row.is_partial
    except IndexCorrupt:
        raise
    except IndexFault as error:
        from shared.logs import Log

        # Read-only, full, or busy with another writer: reading is enough to answer, and the answer says how
        # much it lacks.
        Log("search").info("catch_up.failed", error=error.message)
    return done
