"""Read the state of agents, and of what they have in common, and report it for `memline queue`.

`status`, `doctor`, `/metrics` and the pages only format it, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from sqlite3 import Connection
from typing import Any

import msgspec
from msgspec import to_builtins

from memline.producers.reports import jobs as job_reports
from memline.shared.config.agents import Settings
from memline.shared.config.installation import QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.errors import IndexFault, MemlineError, QueueError
from memline.shared.finding import Finding, by_urgency, problem
from memline.shared.findings.check import check, check_common
from memline.shared.findings.conditions import RESUME
from memline.shared.findings.facts import Facts, sending
from memline.shared.index import chunks, driver, identities, ledger, meta, vectors
from memline.shared.index.accounts import AccountFile
from memline.shared.queue.fleet import Fleet, fleet_at
from memline.shared.scheduling import health, jobs
from memline.shared.scheduling.budget import spent
from memline.shared.scheduling.health import Health
from memline.shared.sync.plan import Plan, make_plan
from memline.shared.sync.staleness import DiskState
from memline.shared.words import counted, money

#: Seconds that a `StateReader` shows a reading for, and the part of the time that readings may take: to
#: compare 5,000 files with their index takes a tenth of a second.
GOOD_FOR_S, SHARE = 2.0, 1 / 20

#: The states of a provider account, the first that holds: a person paused it; its circuit breaker is open,
#: for an outage or a definite no; it asked to wait (429); a request failed, and the next one waits a little.
OK, PAUSED, OPEN, RATE_LIMITED, RETRYING = "ok", "paused", "open", "rate limited", "retrying"

#: Vectors by state, as they are counted.
STATES = ("wanted", "leased", "failed", "ready", "cancelled", "paused")


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
        disk, queue = DiskState.of(plan), settings.queue
        super().__init__(agent, choice, index, now=now, plan=plan, on_disk=disk, queue=queue, fault=fault)
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
        self.providers = _accounts(self)
        #: Of the last minute.
        self.vectors_per_second = round(meta.recent_rate(self.index, now), 2) if self.has_embedder else 0.0
        #: Files of jobs that were not read: without them an index whose job has begun looks complete.
        self.files_waiting = jobs.count_waiting(self.index)
        #: JSON of the jobs that are not over.
        known = jobs.open_jobs(self.index)
        self.job_reports = job_reports.report_jobs(self, known) if known else []

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
        what, action = f"{choice.provider} does not embed: {error.message}", error.hint
        return problem(error.code, what, action or "check the key and the address", choice.provider)
    return None


def _accounts(facts: Facts) -> list[dict[str, Any]]:
    """Report the provider that texts are sent to, and those in trouble; none without an index."""
    breakers = _modes(facts)
    names = dict.fromkeys(filter(None, (facts.provider, *(each["provider"] for each in breakers))))
    return [_account(facts, name, [each for each in breakers if each["provider"] == name]) for name in names]


def _account(facts: Facts, name: str, breakers: list[dict[str, Any]]) -> dict[str, Any]:
    # The health of a provider as a whole is that of its requests, which everything falls back to.
    state = facts.health_of(name)
    is_manual, is_in_use = facts.is_paused or state.manual, facts.provider == name
    word, reason, action = OK, state.reason, health.action_of(state, name)
    if is_manual:
        word, action = PAUSED, RESUME if facts.is_paused else action
        reason = health.PAUSED if facts.is_paused else f"{health.PAUSED} for {name}"
    elif state.paused:
        word, action = OPEN, action or RESUME
    elif is_in_use and facts.hold_s:
        word = RATE_LIMITED
    elif state.failures or state.wait_s(facts.now):
        word = RETRYING
    return {
        "name": name,
        # All modes of it.
        "paused": facts.is_paused,
        "state": word,
        "reason": reason,
        "action": action,
        "failures": state.failures,
        "holdUntil": state.retry_at or None,
        "agentId": facts.agent,
        "model": facts.target.identity.model if facts.target and is_in_use else None,
        "modes": breakers,
    }


def _modes(facts: Facts) -> list[dict[str, Any]]:
    """List the breakers by provider and mode: those of the provider in use, then those in trouble."""
    in_use, states = facts.provider, facts.breakers
    if in_use:
        has_batches = facts.settings.memory.remote.batch.enabled or (in_use, health.BATCH) in states
        used = (health.REQUESTS, health.BATCH) if has_batches else (health.REQUESTS,)
        states = {(in_use, mode): Health() for mode in used} | states
    return [
        _mode(provider, mode, state)
        for (provider, mode), state in states.items()
        if provider == in_use or state.is_stopped or state.failures
    ]


def _mode(provider: str, mode: str, state: Health) -> dict[str, Any]:
    return {
        "provider": provider,
        "mode": mode,
        "state": "open" if state.paused else "closed",
        "failures": state.failures,
        "nextProbe": state.retry_at if state.paused else None,
        "pausedByHand": state.manual,
        "maxRows": state.max_rows or None,
        "reason": state.reason,
    }


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


def queue_url(settings: Settings) -> QueueAddress:
    """Return the address of the queue. Raises QueueError without one."""
    if settings.queue.url:
        return settings.queue
    words = "there is no queue: queue.url is not set, everything runs in one process"
    raise QueueError(words, hint="memline status shows the backlog; set MEMLINE_QUEUE_URL for a fleet")


def fleet_state(settings: Settings, agents: Sequence[AgentSettings]) -> dict[str, Any]:
    """Report the fleet in the JSON contract of `memline queue`. Raises QueueErrors."""
    queue_url(settings)
    now = state(settings, agents)
    if now.fleet is not None and now.fleet.error is not None and not now.fleet.queues:
        raise now.fleet.error
    return to_json(now)


def to_json(now: State) -> dict[str, Any]:
    """Return the JSON contract of `memline queue`; without an answer of Redis there are no queues."""
    agents = [each for each in now.agents if each.has_index]
    counts = {name: sum(getattr(each.backlog, name) for each in agents) for name in STATES if name != "ready"}
    rate = sum(each.vectors_per_second for each in agents)
    pending = counts["wanted"] + counts["leased"]
    # Nothing is sent or stored while it is stopped, whatever came in the last minute.
    is_moving = pending and rate and all(each.stop is None for each in agents)
    return {
        "queues": to_builtins(now.fleet.queues) if now.fleet else (),
        "backlog": {
            **counts,
            "files": sum(each.files_waiting for each in agents),
            "etaSeconds": round(pending / rate, 1) if is_moving else None,
        },
        "agents": [_agent(each) for each in agents],
        "findings": [each.to_json() for each in now.findings],
        "workers": [each.to_json() for each in now.fleet.workers] if now.fleet else [],
        "providers": [account for each in agents for account in each.providers],
        "spending": now.spending,
    }


def _agent(each: AgentState) -> dict[str, Any]:
    return {
        "agentId": each.agent,
        "vectors": {name: getattr(each.backlog, name) for name in STATES},
        "vectorsPerSecond": each.vectors_per_second,
        "jobs": each.job_reports,
    }


def spent_words(report: Mapping[str, Any]) -> str:
    """Say in a line what was spent, and on which models; empty when nothing was in thirty days."""
    if not report["thirtyDays"]["requests"]:
        return ""
    models = ", ".join(f"{each['provider']} {each['model']}" for each in report["models"])
    return f"{_amount(report['today'])} today (UTC), {_amount(report['thirtyDays'])} in 30 days: {models}"


def _amount(counts: Mapping[str, Any]) -> str:
    """Say what was spent: money, and tokens without a price."""
    cost, tokens = counts["cost"], counts["unpricedTokens"]
    unpriced = f"{counted(tokens, 'token')} without a price" if tokens else ""
    return " and ".join(filter(None, (money(cost) if cost or not tokens else "", unpriced)))
