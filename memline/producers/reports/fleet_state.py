"""Report the state of a fleet for `memline queue` and the metrics: queues, backlog, workers, providers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from memline.producers.reports import breakers
from memline.producers.reports.job_reports import Prices, of_index
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import QueueError
from memline.shared.findings.diagnosis import merged, of_agent, of_common, processes
from memline.shared.findings.facts import embeds, fleet_at
from memline.shared.index import identities, jobs, meta, vectors
from memline.shared.index.accounts import AccountFile, Accounts
from memline.shared.index.driver import reading_if_any
from memline.shared.scheduling import health, leases
from memline.shared.scheduling.breaker import Health
from memline.shared.scheduling.budget import ceiling_reached, spent
from memline.shared.words import counted, money

if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.sync.plan import Plan


_STATES = ("wanted", "leased", "failed", "ready", "cancelled", "paused")


def queue_url(settings: Settings) -> str:
    """Return the address of the queue. Raises QueueError without one."""
    if settings.queue.url:
        return settings.queue.address
    words = "there is no queue: queue.url is not set, everything runs in one process"
    raise QueueError(words, hint="memline status shows the backlog; set MEMLINE_QUEUE_URL for a fleet")


def fleet_state(settings: Settings, agents: Sequence[AgentSettings]) -> dict[str, Any]:
    """Report the fleet in the JSON contract of `memline queue`. Raises QueueErrors."""
    queue = queue_url(settings)
    if isinstance(fleet := fleet_at(queue), QueueError):
        raise fleet
    states = list(filter(None, (agent_state(each, settings.prices, queue=queue) for each in agents)))
    found = merged(of_common(settings, agents), *(state["findings"] for state in states))
    names = ("wanted", "leased", "failed", "backfill", "cancelled", "paused")
    backlog = {name: sum(state["vectors"][name] for state in states) for name in names}
    rate = sum(state["vectorsPerSecond"] for state in states)
    return {
        "queues": [queue.to_json() for queue in fleet.queues],
        "backlog": {
            **backlog,
            "files": sum(state["filesWaiting"] for state in states),
            "etaSeconds": eta_s(backlog, rate, is_stopped=any(map(is_stopped, states))),
        },
        "agents": [
            {key: state[key] for key in state if key not in ("providers", "halted")}
            | {"findings": [each.to_json() for each in state["findings"]]}
            for state in states
        ],
        "findings": [each.to_json() for each in found],
        "processes": [each.to_json() for each in processes(agents[0])] if agents else [],
        "workers": [worker.to_json() for worker in fleet.workers],
        "workerFailure": fleet.worker_failure or None,
        "providers": [provider for state in states for provider in state["providers"]],
        "spending": spending(settings),
        "redis": {"usedMemoryBytes": fleet.used_memory},
    }


def spending(settings: Settings | AgentSettings) -> dict[str, Any]:
    """Report what all agents of a home spent for embedding; see `shared.scheduling.budget.spent`."""
    with closing(AccountFile(settings.account_path)) as file:
        return spent(file, settings.limits, time.time())


def spent_words(report: dict[str, Any]) -> str:
    """Say in a line what was spent, and on which models; empty when nothing was in thirty days."""
    if not report["thirtyDays"]["requests"]:
        return ""

    models = ", ".join(f"{each['provider']} {each['model']}" for each in report["models"])
    return f"{amount(report['today'])} today (UTC), {amount(report['thirtyDays'])} in 30 days: {models}"


def amount(counts: Mapping[str, Any], limits: Mapping[str, Any] | None = None) -> str:
    """Say what was spent: money, and tokens without a price; with `limits`, of what of a day."""
    limits = limits or {}
    cost, tokens = counts["cost"], counts["unpricedTokens"]
    max_cost, max_tokens = limits.get("maxCostPerDay"), limits.get("maxTokensPerDay")
    parts = []
    if cost or max_cost or not (tokens or max_tokens):
        parts.append(f"{money(cost)} of {money(max_cost)}" if max_cost else money(cost))
    if max_tokens:
        parts.append(f"{tokens:,} of {counted(max_tokens, 'token')} without a price")
    elif tokens:
        parts.append(f"{counted(tokens, 'token')} without a price")
    return " and ".join(parts)


def ceiling(reader: Connection, settings: AgentSettings) -> dict[str, Any] | None:
    """Report the ceiling that texts of an agent wait for; None when they wait for none."""
    with Accounts.opened(reader, settings) as accounts:
        refusal = ceiling_reached(accounts, settings, time.time())
    return refusal.to_json() if refusal else None


def eta_s(counts: dict[str, Any], rate: float, *, is_stopped: bool) -> float | None:
    """Estimate the seconds until the pending vectors are ready at the present rate; None when unknown.

    `is_stopped`: nothing is sent or stored now, whatever came in the last minute.
    """
    pending = counts["wanted"] + counts["leased"]
    return round(pending / rate, 1) if pending and rate and not is_stopped else None


def is_stopped(state: dict[str, Any]) -> bool:
    """Tell by the state of an agent whether none of its texts is sent or stored now."""
    return bool(state["halted"]) or any(each.halts and each.is_trouble for each in state["findings"])


def agent_state(
    settings: AgentSettings,
    prices: Prices | None = None,
    *,
    queue: str = "",
    files_behind: int | None = 0,
    plan: Plan | None = None,
) -> dict[str, Any] | None:
    """Report the backlog, the open jobs and the providers of an agent, from its rows; None without an index.

    `providers` begins with the one that texts are sent to; others follow that are in trouble; it is empty
    without a provider. `findings` are values: those that rows, `queue`, `files_behind` and `plan` tell.
    Raises IndexFaults.
    """
    with reading_if_any(settings.index_path) as reader:
        if reader is None:
            return None
        target = identities.target(reader)
        counts = vectors.backlog(reader, target.id) if target else vectors.Backlog()
        with Accounts.opened(reader, settings) as accounts:
            providers = provider_states(accounts, settings, target.identity) if target else []
        rows = jobs.open_jobs(reader)
        opened = (
            of_index(reader, settings, rows, prices=prices or {}, now=time.time(), queue=queue)
            if rows
            else []
        )
        return {
            "agentId": settings.agent,
            "vectors": {
                **{name: getattr(counts, name) for name in _STATES},
                "backfill": vectors.count_by_priority(reader, target.id, vectors.BACKFILL) if target else 0,
            },
            "ceiling": ceiling(reader, settings),
            "requestsOut": len(leases.tokens(reader)),
            "vectorsPerSecond": round(meta.recent_rate(reader, time.time()), 2),
            # Not read yet: without them an index whose job has begun looks complete.
            "filesWaiting": jobs.count_waiting(reader),
            "jobs": [job.to_json() for job in opened],
            "jobCounts": jobs.count_by_state(reader),
            "providers": providers,
            "findings": of_agent(settings, index=reader, plan=plan, files_behind=files_behind, queue=queue),
            # Whether the fleet stands still.
            "halted": bool(queue) and not embeds(queue),
        }


def state_of(state: Health) -> str:
    """Name the state of a provider that is not paused: `cooldown` also between tries that failed."""
    return "cooldown" if state.failures or state.retry_at > time.time() else "ok"


def provider_states(accounts: Accounts, settings: AgentSettings, target: Identity) -> list[dict[str, Any]]:
    """Report the provider that texts are sent to, and those in trouble: paused, cooldown or ok, and why."""
    modes = breakers.of_index(accounts, settings)
    is_all_paused = bool(meta.get(accounts.index, meta.PAUSED, False))
    providers = []
    for name in dict.fromkeys([target.provider, *(each["provider"] for each in modes)]):
        # The health of a provider as a whole is that of its requests, which everything falls back to.
        state = health.read(accounts, name)
        is_manual, reason = is_all_paused or state.manual, state.reason
        if is_manual:
            reason = health.PAUSED + health.of_mode(name, health.REQUESTS) * (not is_all_paused)
        providers.append(
            {
                "name": name,
                # All modes of it.
                "paused": is_all_paused,
                "state": "paused" if is_manual or state.paused else state_of(state),
                "reason": reason,
                "action": breakers.RESUME
                if is_all_paused
                else health.action_of(state, name, health.REQUESTS),
                "failures": state.failures,
                "holdUntil": state.retry_at or None,
                "agentId": settings.agent,
                "model": target.model if name == target.provider else None,
                "modes": [each for each in modes if each["provider"] == name],
            }
        )
    return providers
