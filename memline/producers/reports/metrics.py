"""Show Prometheus what a fleet is doing, as `reports.state` reads it at a scrape.

The only module that knows prometheus_client.
"""

from __future__ import annotations

import threading
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from memline.producers.reports.fleet_state import STATES
from memline.producers.reports.state import AgentState, State, StateReader
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import MemlineError
from memline.shared.logs import Log
from memline.shared.queue.fleet import Fleet
from memline.shared.scheduling import jobs

#: Name without the prefix -> what it is. All are gauges.
METRICS: dict[str, str] = tomllib.loads((Path(__file__).parent / "metrics.toml").read_text("utf-8"))

PREFIX = "memline_"


class FleetCollector(Collector):
    """Reads the state of the fleet when Prometheus asks. What cannot be read is left out; `…_up` says so."""

    def __init__(
        self, settings: Settings, agents: Sequence[AgentSettings], reader: StateReader | None = None
    ) -> None:
        """`reader`: that of the pages, where there are some."""
        self._reader = reader or StateReader(settings, agents)
        self._lock = threading.Lock()
        self._families: dict[str, Any] = {}
        self._log = Log("metrics")

    def collect(self) -> list[Metric]:
        """Read everything once; scrapes that come at the same time wait for each other."""
        with self._lock:
            self._families = {}
            try:
                self._add_state(self._reader.read())
            except MemlineError as error:
                self._log.warning("state.unreadable", error=error.message, hint=error.hint)
            return list(self._families.values())

    def _add(self, name: str, value: float, **labels: str) -> None:
        """Add a sample; the metric's family is made with its first sample."""
        if name not in self._families:
            self._families[name] = GaugeMetricFamily(PREFIX + name, METRICS[name], labels=list(labels))
        self._families[name].add_metric(list(labels.values()), value)

    def _add_state(self, state: State) -> None:
        fleet = state.fleet or Fleet()
        if state.fleet is not None:
            self._add("redis_up", int(bool(fleet.queues)))
        for queue in fleet.queues:
            for name in ("waiting", "in_flight", "delayed", "dead"):
                self._add("queue_messages", getattr(queue, name), queue=queue.name, state=name)
            self._add("queue_oldest_seconds", queue.oldest_s, queue=queue.name)
            serving = sum(queue.name in each.queues for each in fleet.workers)
            self._add("workers", serving, role=queue.name)
        for each in state.spending["models"]:
            for period, name in (("today", "today"), ("thirtyDays", "thirty_days")):
                labels = {"provider": each["provider"], "model": each["model"], "period": name}
                self._add("spent_dollars", each[period]["cost"], **labels)
                self._add("spent_tokens", each[period]["tokens"], **labels)
        for key, limit in state.spending["limits"].items():
            if limit is not None:
                self._add("spending_limit", limit, key=key)
        for agent in state.agents:
            self._add_agent(agent)
        for code, agent_id, level in sorted(
            {(each.code, each.agent or "", each.level) for each in state.findings}
        ):
            self._add("finding", 1, code=code, agent=agent_id, level=level)

    def _add_agent(self, state: AgentState) -> None:
        agent = state.agent
        self._add("index_up", int(state.fault is None), agent=agent)
        self._add("files_behind", state.plan.changes.count, agent=agent)
        if not state.has_index:
            return
        for name in STATES:
            self._add("vectors", getattr(state.backlog, name), agent=agent, state=name)
        self._add("vectors_per_second", state.vectors_per_second, agent=agent)
        for name, count in state.job_counts.items():
            self._add("jobs", count, agent=agent, state=name)
        running = [each for each in state.job_reports if each["state"] == jobs.RUNNING]
        oldest_s = max((time.time() - each["createdAt"] for each in running), default=0.0)
        texts, files = ([each[name] for each in running] for name in ("texts", "files"))
        self._add("job_oldest_seconds", max(oldest_s, 0.0), agent=agent)
        self._add("job_texts_left", sum(each["left"] for each in texts), agent=agent)
        self._add("job_files_left", sum(each["total"] - each["done"] for each in files), agent=agent)


def page(collector: FleetCollector) -> str:
    """Render the metrics as text, once."""
    # A registry of its own: the default one adds metrics of Python and of this process.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry).decode()
