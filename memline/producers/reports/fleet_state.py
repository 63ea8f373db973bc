"""Report the state of a fleet for `memline queue`: queues, backlog, workers, providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from memline.producers.reports.state import AgentState, State, state
from memline.shared.config.agents import Settings
from memline.shared.config.installation import QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import QueueError
from memline.shared.words import counted, money

#: Vectors by state, as they are counted.
STATES = ("wanted", "leased", "failed", "ready", "cancelled", "paused")


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
        "ceiling": to_builtins(each.refusal),
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
