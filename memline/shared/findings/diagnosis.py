"""Read the findings of an agent, of what its home has in common, and of an error that ended a call."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.errors import IndexFault, IndexMissing, MemlineError
from memline.shared.finding import LEVELS, OK, Finding, Trouble
from memline.shared.findings.facts import Facts, FleetFacts, roles_of
from memline.shared.findings.table import AGENT, COMMON, find, rows
from memline.shared.index.accounts import AccountFile
from memline.shared.scheduling import home_processes
from memline.shared.scheduling.home_processes import Process

if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.sync.plan import Plan


#: What is well comes last.
_RANK = {level: rank for rank, level in enumerate((*LEVELS, OK))}


def queue_of(settings: Settings) -> str:
    """Return the address of a fleet's Redis; empty without a fleet."""
    return settings.queue.address if settings.queue.url else ""


def of_agent(
    settings: AgentSettings,
    *,
    choice: Choice | None = None,
    index: Connection | None = None,
    fault: IndexFault | None = None,
    plan: Plan | None = None,
    files_behind: int | None = None,
    troubles: tuple[Trouble, ...] = (),
    queue: str = "",
    now: float | None = None,
    codes: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Return the findings of one agent, most urgent first; the arguments are those of `facts.Facts`.

    `codes`: of these alone; empty for all.
    """
    now = time.time() if now is None else now
    facts = Facts(
        settings,
        choice or choose(settings),
        index,
        now=now,
        fault=fault,
        plan=plan,
        files_behind=files_behind,
        troubles=troubles,
        queue=queue,
    )
    with closing(facts):
        return find(AGENT, facts, settings.agent, codes)


def of_common(
    settings: Settings, agents: Sequence[AgentSettings], warnings: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """Return the findings of the machine and of the fleet of these agents, most urgent first.

    Their agent is None. `warnings`: those of loading the configuration.
    """
    queue = queue_of(settings)
    roles = roles_of(agents) if queue else ()
    with closing(AccountFile(agents[0].account_path)) as file:
        facts = FleetFacts(file, queue=queue, roles=roles, warnings=tuple(warnings), now=time.time())
        return find(COMMON, facts, None)


def halting_codes() -> frozenset[str]:
    """Return the codes of what keeps the texts of an agent from being embedded."""
    return frozenset(row.code for row in rows(AGENT) if row.halts)


def processes(settings: AgentSettings) -> list[Process]:
    """List the processes of an agent's home that have no heartbeat, those that are gone as well."""
    with closing(AccountFile(settings.account_path)) as file:
        return home_processes.listed(file)


def merged(*parts: Iterable[Finding]) -> tuple[Finding, ...]:
    """Put findings of several readings into one list, most urgent first, as the table has them."""
    order = {row.code: rank for rank, row in enumerate((*rows(AGENT), *rows(COMMON)))}
    found = (each for part in parts for each in part)
    return tuple(sorted(found, key=lambda each: (_RANK[each.level], order.get(each.code, 0))))


def of_error(settings: AgentSettings, error: IndexFault) -> tuple[Finding, ...]:
    """Return the findings that an index fault is, for a call that it ended."""
    if isinstance(error, IndexMissing):
        return of_agent(settings)
    return of_agent(settings, fault=error)


def of_troubles(settings: AgentSettings, *troubles: Trouble) -> tuple[Finding, ...]:
    """Return the findings that these troubles are, and no others."""
    return of_agent(settings, troubles=troubles, codes={each.code for each in troubles})


def of_own_settings(file: str) -> Finding:
    """Return the finding that this process runs with older settings than those of its file."""
    trouble = Trouble(code="old_settings", details={"process": "this process", "file": file})
    (found,) = find(COMMON, FleetFacts(troubles=(trouble,), now=time.time()), None, {"old_settings"})
    return found


def of_end(code: str, error: MemlineError) -> Finding:
    """Return the finding with this code that an error is which ended the examination itself."""
    trouble = Trouble(code=code, details={"reason": error.message}, action=error.hint)
    (found,) = find(COMMON, FleetFacts(troubles=(trouble,), now=time.time()), None, {code})
    return found
