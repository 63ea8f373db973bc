"""The picture of a fleet that `memline queue` and the metrics show: queues, backlog, workers, providers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from shared.config.schema import AgentSettings, Settings
from shared.errors import IndexMissing, QueueError
from shared.index import driver, health, identity, meta, vectors

if TYPE_CHECKING:
    from sqlite3 import Connection


def queue_url(settings: Settings) -> str:
    """The URL of the queue. Raises QueueError without one."""
    if not settings.queue.url:
        raise QueueError(
            "there is no queue: queue.url is not set, everything runs in one process",
            hint="memline status shows the backlog; set MEMLINE_QUEUE_URL for a fleet",
        )
    return settings.queue.url


def report(settings: Settings, agents: Sequence[AgentSettings]) -> dict[str, Any]:
    """The JSON contract of `memline queue`. Raises QueueError when Redis cannot be asked."""
    from shared.queue import depth

    fleet = depth.read(queue_url(settings))
    backlog = {"wanted": 0, "leased": 0, "failed": 0}
    rate = 0.0
    providers: list[dict[str, Any]] = []
    for agent in agents:
        try:
            with closing(driver.open_reader(agent.index_path)) as reader, driver.faults(agent.index_path):
                rate += _add_agent(reader, agent.agent, backlog, providers)
        except IndexMissing:
            continue
    pending = backlog["wanted"] + backlog["leased"]
    return {
        "queues": [one.to_json() for one in fleet.queues],
        "backlog": {**backlog, "etaSeconds": round(pending / rate, 1) if pending and rate else None},
        "workers": [one.to_json() for one in fleet.workers],
        "providers": providers,
        "redis": {"usedMemoryBytes": fleet.used_memory},
    }


def _add_agent(
    reader: Connection, agent: str, backlog: dict[str, int], providers: list[dict[str, Any]]
) -> float:
    """Add an agent's rows to the picture; returns its vectors a second over the last minute."""
    target = identity.target(reader)
    if target is None:
        return 0.0
    counts = vectors.backlog(reader, target.id)
    backlog["wanted"] += counts.wanted
    backlog["leased"] += counts.leased
    backlog["failed"] += counts.failed
    state = health.read(reader, target.identity.provider)
    is_paused_by_hand = bool(meta.get(reader, meta.PAUSED, False))
    providers.append(
        {
            "agentId": agent,
            "name": target.identity.provider,
            "model": target.identity.model,
            "state": "paused" if is_paused_by_hand else state.state,
            "reason": "paused by hand" if is_paused_by_hand else state.reason,
            "action": "memline queue resume" if is_paused_by_hand else state.action,
            "failures": state.failures,
            "holdUntil": state.hold_until or None,
        }
    )
    return meta.rate_lately(reader, time.time())
