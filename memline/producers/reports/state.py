"""Read the state of agents, and of what they have in common: `status`, `queue`, `doctor`, `/metrics` and the
pages only format it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from sqlite3 import Connection
from typing import Any

import msgspec

from memline.producers.reports import jobs as job_reports
from memline.producers.reports import providers
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.errors import IndexFault, MemlineError
from memline.shared.finding import Finding, by_urgency, problem
from memline.shared.findings.check import check, check_common
from memline.shared.findings.facts import Facts, sending
from memline.shared.index import chunks, driver, identities, ledger, vectors
from memline.shared.index.accounts import AccountFile
from memline.shared.queue.fleet import Fleet, fleet_at
from memline.shared.scheduling import jobs
from memline.shared.scheduling.budget import spent
from memline.shared.sync.plan import Plan, make_plan

#: Seconds that a `StateReader` shows a reading for, and the part of the time that readings may take: to
#: compare 5,000 files with their index takes a tenth of a second.
GOOD_FOR_S, SHARE = 2.0, 1 / 20


class AgentState(Facts):
    """The state of one agent at one moment; without an index its counts are zero.

    All that is shown of it is read when it is made: its connection is closed then.
    """

    plan: Plan

    def __init__(
        self,
        settings: Settings,
        agent: AgentSettings,
        choice: Choice,
        index: Connection | None,
        *,
        met: Sequence[Finding],
        fault: IndexFault | None = None,
    ) -> None:
        plan, now = make_plan(agent, choice, index), time.time()
        super().__init__(agent, choice, index, now=now, plan=plan, queue=settings.queue, fault=fault)
        #: What is wrong or worth knowing, most urgent first; and why no text is sent.
        self.findings, self.stop = check(self, *met), sending(self)
        #: The identity that is searched.
        self.active = identities.active(self.index)
        counts = {name: (name, 0, 0) for name in agent.memory.sources}
        counts |= {row[0]: row for row in ledger.source_counts(self.index)}
        #: Source, its files and their chunks.
        self.sources = [counts[name] for name in sorted(counts)]
        self.files = sum(files for _, files, _ in self.sources)
        self.chunks = chunks.count(self.index)
        self.outcomes = ledger.outcome_counts(self.index)
        #: All ready vectors, and those that no chunk needs.
        self.ready, self.cached = vectors.count_ready(self.index), vectors.count_cached(self.index)
        self.providers = providers.accounts(self)
        #: Of the last minute.
        self.vectors_per_second = round(self.rate, 2)
        #: Files of jobs that were not read: without them an index whose job has begun looks complete.
        self.files_waiting = jobs.count_waiting(self.index)
        #: JSON of the jobs that are not over.
        self.job_reports = job_reports.report_jobs(self, self.jobs) if self.jobs else []

    @property
    def is_building(self) -> bool:
        """Whether another model is built beside the one that is searched."""
        return bool(self.active and self.target and self.active.id != self.target.id)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a home's agents and of its fleet at one moment."""

    #: Seconds since the epoch.
    at: float
    agents: tuple[AgentState, ...]
    #: Those of all agents and what these have in common, most urgent first.
    findings: tuple[Finding, ...]
    #: What all agents spent, as JSON.
    spending: dict[str, Any]
    #: Queues and workers; None without a fleet.
    fleet: Fleet | None = None


def state(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    deep: bool = False,
    met: Sequence[Finding] = (),
) -> State:
    """Read everything that is shown of these agents, once.

    `deep`: ask each provider for one vector, which may cost a little. `met`: what the caller met of these
    agents.
    """
    read = tuple(agent_state(settings, each, deep=deep, met=met) for each in agents)
    with closing(AccountFile(settings.account_path)) as file:
        spending = spent(file, settings.content.limits, time.time())
    return State(
        at=time.time(),
        agents=read,
        findings=by_urgency(check_common(settings, agents), *(each.findings for each in read)),
        spending=spending,
        fleet=fleet_at(settings.queue) if settings.queue else None,
    )


def agent_state(
    settings: Settings, agent: AgentSettings, *, deep: bool = False, met: Sequence[Finding] = ()
) -> AgentState:
    """Read the state of one agent; arguments as in `state`."""
    choice = choose(agent)
    if deep and choice.identity is not None and (failure := probe(choice)) is not None:
        met = (*met, failure)
    try:
        with driver.reading_if_any(agent.index_path) as reader:
            return AgentState(settings, agent, choice, reader, met=met)
    except IndexFault as fault:
        return AgentState(settings, agent, choice, None, met=met, fault=fault)


def probe(choice: Choice) -> Finding | None:
    """Embed one word with the chosen provider; return the finding that it fails, None when it works."""
    try:
        with closing(choice.build()) as embedder:
            embedder.embed_query("ping", timeout_s=10)
    except MemlineError as error:
        return problem(
            error.code,
            f"{choice.provider} does not embed: {error.message}",
            error.hint or "check the key and the address of the provider",
            choice.provider,
        )
    return None


class StateReader:
    """Reads the state when it is asked for, and not too often. Safe to use from several threads."""

    def __init__(self, settings: Settings, agents: Sequence[AgentSettings]) -> None:
        self._settings = settings
        self._agents = tuple(agents)
        self._lock = threading.Lock()
        self._state: State | None = None
        self._due = 0.0

    def read(self) -> State:
        """Return the state, which is read anew when it is due."""
        with self._lock:
            began = time.monotonic()
            if self._state is None or began >= self._due:
                self._state = state(self._settings, self._agents)
                ended = time.monotonic()
                self._due = ended + max(GOOD_FOR_S, (ended - began) / SHARE)
            return self._state

    def forget(self) -> None:
        """Let the next caller read the state anew, because an action has changed it."""
        with self._lock:
            self._due = 0.0
