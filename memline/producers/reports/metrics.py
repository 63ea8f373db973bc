"""Show Prometheus what a fleet is doing: read anew at every scrape, from Redis and from the rows.

The only module that knows prometheus_client.
"""

from __future__ import annotations

import shutil
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from memline.producers.reports.fleet_state import agent_state, spending
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexFault, MemlineError, QueueError
from memline.shared.figures import counters
from memline.shared.finding import Finding
from memline.shared.findings.diagnosis import of_agent, of_common, queue_of
from memline.shared.index.accounts import AccountFile
from memline.shared.logs import Log
from memline.shared.queue import depth
from memline.shared.queue.routes import needed_roles
from memline.shared.sync.plan import FILES_EVERY_S, FILES_SHARE, IndexState, Plan, make_plan, plan_of

#: Name without the prefix -> what it is. A name that ends in `_total` is a counter, the others are gauges.
METRICS: dict[str, str] = tomllib.loads((Path(__file__).parent / "metrics.toml").read_text("utf-8"))

PREFIX = "memline_"

#: What processes count, beside histograms.
_COUNTERS = (counters.SEARCHES, counters.REQUESTS, counters.ASKED)


class FleetCollector(Collector):
    """Reads the state of the fleet when Prometheus asks. What cannot be read is left out; `…_up` says so."""

    def __init__(self, settings: Settings, agents: list[AgentSettings]) -> None:
        self._settings = settings
        self._url = settings.queue.address
        self._agents = tuple(agents)
        self._lock = threading.Lock()
        self._expected = needed_roles(agents)
        self._families: dict[str, Any] = {}
        #: Agent -> how its files compare with its index, and when that is asked again (monotonic seconds).
        self._plans: dict[str, tuple[float, Plan]] = {}
        self._log = Log("metrics")

    def collect(self) -> list[Metric]:
        """Read everything once; scrapes that come at the same time wait for each other."""
        with self._lock:
            self._families = {}
            if self._url:
                self._add_queues()
            self._add_spending()
            self._add_counters()
            found = [*of_common(self._settings, self._agents)]
            for agent in self._agents:
                try:
                    found += self._add_agent(agent)
                except MemlineError as error:
                    fields = {"agent": agent.agent, "error": error.message, "hint": error.hint}
                    self._log.warning("index.unreadable", **fields)
                    self._add("index_up", 0, agent=agent.agent)
                    if isinstance(error, IndexFault):
                        plan = make_plan(agent, choose(agent), IndexState())
                        found += of_agent(agent, fault=error, plan=plan, queue=queue_of(self._settings))
            for code, of, level in sorted({(each.code, each.agent or "", each.level) for each in found}):
                self._add("finding", 1, code=code, agent=of, level=level)
            return list(self._families.values())

    def _add(self, name: str, value: float, **labels: str) -> None:
        """Add a sample; the metric's family is made with its first sample."""
        if name not in self._families:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            self._families[name] = kind(PREFIX + name, METRICS[name], labels=list(labels))
        self._families[name].add_metric(list(labels.values()), value)

    def _add_queues(self) -> None:
        try:
            fleet = depth.read(self._url)
        except QueueError as error:
            self._log.warning("redis.unreachable", error=error.message, hint=error.hint)
            self._add("redis_up", 0)
            return
        self._add("redis_up", 1)
        for queue in fleet.queues:
            on = {"queue": queue.role}
            for state in ("waiting", "in_flight", "delayed", "dead"):
                self._add("queue_messages", getattr(queue, state), **on, state=state)
            self._add("queue_oldest_seconds", queue.oldest_s, **on)
            of = {"role": queue.role}
            self._add("workers", sum(queue.role in each.queues for each in fleet.workers), **of)
            self._add("worker_expected", int(queue.needs_worker(self._expected)), **of)

    def _add_spending(self) -> None:
        try:
            report = spending(self._settings)
        except MemlineError as error:
            self._log.warning("accounts.unreadable", error=error.message, hint=error.hint)
            return
        for each in report["models"]:
            for period, name in (("today", "today"), ("thirtyDays", "thirty_days")):
                labels = {"provider": each["provider"], "model": each["model"], "period": name}
                self._add("spent_dollars", each[period]["cost"], **labels)
                self._add("spent_tokens", each[period]["tokens"], **labels)
        for key, limit in report["limits"].items():
            if limit is not None:
                self._add("spending_limit", limit, key=key)

    def _add_counters(self) -> None:
        """Add what all processes of the home counted; a histogram for each agent that was asked."""
        try:
            with closing(AccountFile(self._settings.account_path)) as file:
                found = counters.read(file)
        except MemlineError as error:
            self._log.warning("accounts.unreadable", error=error.message, hint=error.hint)
            return
        with suppress(OSError):
            self._add("disk_free_bytes", shutil.disk_usage(self._settings.home).free)
        for labels, at in found.get(counters.BACKED_UP, ()):
            self._add("backup_age_seconds", max(0.0, time.time() - at), **labels)
        for name in _COUNTERS:
            for labels, count in found.get(name, ()):
                self._add(f"{name}_total", count, **labels)
        self._add_histogram(found)

    def _add_histogram(self, found: counters.Counted) -> None:
        """Add the seconds of searches, a histogram for each agent that was asked."""
        buckets: dict[str, dict[str, float]] = {}
        for labels, count in found.get(counters.SECONDS, ()):
            buckets.setdefault(labels["agent"], {})[labels["le"]] = count
        if not buckets:
            return
        sums = {labels["agent"]: value for labels, value in found.get(counters.SECONDS_SUM, ())}
        name = counters.SECONDS
        family = HistogramMetricFamily(PREFIX + name, METRICS[name], labels=["agent"])
        for agent, counts in buckets.items():
            family.add_metric([agent], counters.cumulative(counts), sums.get(agent, 0.0))
        self._families[name] = family

    def _add_agent(self, settings: AgentSettings) -> tuple[Finding, ...]:
        """Add what the rows of an agent say; returns what is wrong with it."""
        agent, plan, queue = settings.agent, self._plan(settings), queue_of(self._settings)
        state = agent_state(settings, queue=queue, plan=plan, files_behind=None)
        self._add("files_behind", plan.changes.count, agent=agent)
        self._add("index_up", 1, agent=agent)
        if state is None:
            return of_agent(settings, queue=queue, plan=plan)
        for name, count in state["vectors"].items():
            if name != "backfill":
                self._add("vectors", count, agent=agent, state=name)
        self._add("vectors_per_second", state["vectorsPerSecond"], agent=agent)
        self._add_jobs(agent, state)
        found: tuple[Finding, ...] = state["findings"]
        return found

    def _add_jobs(self, agent: str, state: dict[str, Any]) -> None:
        for name, count in state["jobCounts"].items():
            self._add("jobs", count, agent=agent, state=name)
        running = [job for job in state["jobs"] if job["state"] == "running"]
        oldest_s = max((time.time() - job["createdAt"] for job in running), default=0.0)
        self._add("job_oldest_seconds", max(oldest_s, 0.0), agent=agent)
        self._add("job_texts_left", sum(job["texts"]["left"] for job in running), agent=agent)
        files_left = sum(job["files"]["total"] - job["files"]["done"] for job in running)
        self._add("job_files_left", files_left, agent=agent)

    def _plan(self, settings: AgentSettings) -> Plan:
        due, plan = self._plans.get(settings.agent, (0.0, None))
        if plan is None or time.monotonic() >= due:
            began_s = time.thread_time()
            plan = plan_of(settings)
            pause_s = max(FILES_EVERY_S, (time.thread_time() - began_s) / FILES_SHARE)
            self._plans[settings.agent] = (time.monotonic() + pause_s, plan)
        return plan


@contextmanager
def serve(collector: FleetCollector, *, host: str, port: int) -> Iterator[str]:
    """Serve the metrics over HTTP from a thread; gives their address, with port 0 that of a free port.

    Raises MemlineError when the port is in use.
    """
    try:
        server, thread = start_http_server(port, host, _registry(collector))
    except OSError as error:
        raise MemlineError(
            f"cannot serve metrics on {host}:{port}: {error.strerror}", hint="memline metrics --port 9465"
        ) from error
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def page(collector: FleetCollector) -> str:
    """Render the metrics as text, once."""
    return generate_latest(_registry(collector)).decode()


def _registry(collector: FleetCollector) -> CollectorRegistry:
    # Of its own: the default one adds metrics of Python and of this process.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry
