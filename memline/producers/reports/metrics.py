"""Show Prometheus what a fleet is doing, as `reports.state` reads it at a scrape.

The only module that knows prometheus_client.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from memline.producers.reports.state import STATES, State, StateReader
from memline.shared.values import read_table

#: Name without the prefix -> what it is. All are gauges.
METRICS: dict[str, str] = read_table(__file__, "metrics.toml")

PREFIX = "memline_"


class _States(Collector):
    """Reads the state when Prometheus asks."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader

    def collect(self) -> list[Metric]:
        families = dict[str, Any]()
        for name, value, labels in samples(self._reader.read()):
            if name not in families:
                families[name] = GaugeMetricFamily(PREFIX + name, METRICS[name], labels=list(labels))
            families[name].add_metric(list(labels.values()), value)
        return list(families.values())


def samples(state: State) -> Iterator[tuple[str, float, dict[str, str]]]:
    """Yield name, value and labels of what is known; what cannot be read is left out."""
    if (fleet := state.fleet) is not None:
        yield "redis_up", int(bool(fleet.queues)), {}
        for queue in fleet.queues:
            for name in ("waiting", "in_flight", "delayed", "dead"):
                yield "queue_messages", getattr(queue, name), {"queue": queue.name, "state": name}
            yield "queue_oldest_seconds", queue.oldest_s, {"queue": queue.name}
            serving = sum(queue.name in each.queues for each in fleet.workers)
            yield "workers", serving, {"role": queue.name}
    for each in state.spending["models"]:
        for period, name in (("today", "today"), ("thirtyDays", "thirty_days")):
            labels = {"provider": each["provider"], "model": each["model"], "period": name}
            yield "spent_dollars", each[period]["cost"], labels
            yield "spent_tokens", each[period]["tokens"], labels
    for key, limit in state.spending["limits"].items():
        if limit is not None:
            yield "spending_limit", limit, {"key": key}
    for agent in state.agents:
        name = agent.agent
        yield "files_behind", agent.plan.changes.count, {"agent": name}
        if agent.has_index:
            for kind in STATES:
                yield "vectors", getattr(agent.backlog, kind), {"agent": name, "state": kind}
            yield "vectors_per_second", agent.vectors_per_second, {"agent": name}
    for code, name, level in sorted({(each.code, each.agent or "", each.level) for each in state.findings}):
        yield "finding", 1, {"code": code, "agent": name, "level": level}


def page(reader: StateReader) -> str:
    """Render the metrics as text, once."""
    # A registry of its own: the default one adds metrics of Python and of this process.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_States(reader))
    return generate_latest(registry).decode()
