"""The picture of a fleet that `memline queue` and the metrics show: queues, backlog, workers, providers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producers import breakers
from shared.config.schema import AgentSettings, Settings
from shared.errors import IndexMissing, QueueError
from shared.index import backfill, dispatch, driver, health, identity, meta, vectors
from shared.index.identity import IdentityRow

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
    rows = [found for agent in agents if (found := of_agent(agent))]
    backlog = {
        name: sum(found.json["vectors"][name] for found in rows)
        for name in ("wanted", "leased", "failed", "backfill", "cancelled")
    }
    coming = backlog["wanted"] + backlog["leased"]
    rate = sum(found.json["vectorsPerSecond"] for found in rows)
    return {
        "queues": [one.to_json() for one in fleet.queues],
        "backlog": {**backlog, "etaSeconds": round(coming / rate, 1) if coming and rate else None},
        "agents": [found.json for found in rows],
        "workers": [one.to_json() for one in fleet.workers],
        "providers": [one for found in rows for one in found.providers],
        "redis": {"usedMemoryBytes": fleet.used_memory},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRows:
    """What the rows of one agent say of its work, as JSON."""

    json: dict[str, Any]
    #: The one that texts go to, then those that are in trouble; empty without a provider.
    providers: list[dict[str, Any]]

    @property
    def provider(self) -> dict[str, Any] | None:
        """The one that texts go to."""
        return self.providers[0] if self.providers else None


def of_agent(agent: AgentSettings) -> AgentRows | None:
    """The work of an agent as its rows have it; None while there is no index. Raises IndexFaults."""
    try:
        with closing(driver.open_reader(agent.index_path)) as reader, driver.faults(agent.index_path):
            return _of_index(reader, agent)
    except IndexMissing:
        return None


def _of_index(reader: Connection, settings: AgentSettings) -> AgentRows:
    target = identity.target(reader)
    counts = vectors.backlog(reader, target.id) if target else vectors.Backlog()
    json = {
        "agentId": settings.agent,
        "vectors": {
            "wanted": counts.wanted,
            "leased": counts.leased,
            "failed": counts.failed,
            "ready": counts.ready,
            "backfill": backfill.count(reader, target.id, backfill.BACKFILL) if target else 0,
            "cancelled": counts.cancelled,
        },
        "requestsOut": dispatch.requests_out(reader),
        "vectorsPerSecond": round(meta.rate_lately(reader, time.time()), 2),
        "embeddedTotal": meta.get(reader, meta.EMBEDDED_TOTAL, 0),
        "cachedTotal": meta.get(reader, meta.CACHED_TOTAL, 0),
        "misfits": meta.get(reader, meta.MISFITS),
    }
    return AgentRows(json=json, providers=_providers(reader, settings, target) if target else [])


def _providers(reader: Connection, settings: AgentSettings, target: IdentityRow) -> list[dict[str, Any]]:
    modes = breakers.of_index(reader, settings)
    names = list(dict.fromkeys([target.identity.provider, *(each["provider"] for each in modes)]))
    is_paused_by_hand = bool(meta.get(reader, meta.PAUSED, False))
    return [
        {
            **_provider(reader, name, is_paused_by_hand),
            "agentId": settings.agent,
            "model": target.identity.model if name == target.identity.provider else None,
            "modes": [each for each in modes if each["provider"] == name],
        }
        for name in names
    ]


def _provider(reader: Connection, name: str, is_paused_by_hand: bool) -> dict[str, Any]:
    """What is known of a provider as a whole: of its requests, which everything falls back to."""
    state = health.read(reader, name)
    is_by_hand = is_paused_by_hand or state.by_hand
    return {
        "name": name,
        "state": "paused" if is_by_hand or state.paused else "ok",
        "reason": "paused by hand" if is_by_hand else state.reason,
        "action": "memline queue resume" if is_by_hand else state.action,
        "failures": state.failures,
        "holdUntil": state.hold_until or None,
    }
