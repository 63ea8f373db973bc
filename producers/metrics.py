"""What a fleet is doing, for Prometheus: read anew at every scrape, from Redis and from the rows.

The only module that knows prometheus_client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from producers.queue_report import of_agent
from shared.config.schema import AgentSettings, Settings
from shared.embedders.choice import choose
from shared.errors import IndexMissing, MemlineError, QueueError
from shared.index import driver
from shared.index.plan import Known, ledger_of, look
from shared.logs import Log

#: Seconds the count of files behind is good for: it walks the workspace, 0.1 s of CPU for 5,000 files.
LOOK_EVERY_S = 60.0

#: Name without the prefix -> what it is. A name that ends in `_total` is a counter, the others are gauges.
#: docs/fleet.md has the same table; a test compares the names.
METRICS = {
    "redis_up": "1 when Redis could be asked, else 0; then there are no queues and workers below.",
    "redis_memory_bytes": "Memory in use by Redis, for all its users.",
    "queue_messages": "Messages of a queue: waiting, in_flight, delayed or dead.",
    "queue_oldest_seconds": "Age of the oldest message that no worker has taken.",
    "queue_messages_per_second": "Messages finished, over the last minute.",
    "workers": "Worker processes alive that take messages from a queue.",
    "worker_threads": "Messages that those can work on at a time.",
    "worker_busy_seconds_total": "Seconds the threads of a worker process have spent on messages.",
    "index_up": "1 when the index of an agent could be read, or there is none yet; else 0.",
    "files_behind": "Files that changed and are not in the index yet, as of a look in the last minute.",
    "vectors": "Vectors of an agent: wanted, leased, ready, failed or cancelled.",
    "vectors_backfill": "Wanted vectors that belong to a backfill and wait behind those of live edits.",
    "vectors_per_second": "Vectors stored, over the last minute.",
    "vectors_embedded_total": "Vectors stored since the index was made.",
    "vectors_cached_total": "Vectors that were wanted again and were still there.",
    "requests_out": "Leases: embedding requests sent out and not answered yet.",
    "provider_paused": "1 while nothing is sent to the provider until somebody acts.",
    "provider_failures": "Failures of the provider in a row.",
    "provider_breaker": "Circuit breaker of a provider in a mode: 0 closed, 1 a probe is out, 2 open.",
    "provider_hold_seconds": "Seconds until the provider is asked again; 0 when nothing holds it.",
}

PREFIX = "memline_"

#: State of a circuit breaker -> value of its gauge.
BREAKER = {"closed": 0, "half_open": 1, "open": 2}


class FleetCollector(Collector):
    """Looks at the fleet when Prometheus asks. What cannot be read is left out, and `…_up` says so."""

    def __init__(self, settings: Settings, agents: Sequence[AgentSettings]) -> None:
        self._url = settings.queue.url
        self._agents = tuple(agents)
        self._lock = threading.Lock()
        #: Agent -> when its files were looked at (monotonic seconds), and how many were behind.
        self._looked: dict[str, tuple[float, int]] = {}
        self._log = Log("metrics")

    def collect(self) -> Iterator[Metric]:
        """One picture; scrapes that come at the same time take turns."""
        with self._lock:
            picture = _Picture()
            if self._url:
                self._add_queues(picture)
            for agent in self._agents:
                try:
                    self._add_agent(picture, agent)
                except MemlineError as error:
                    self._log.warning(
                        "index.unreadable", agent=agent.agent, error=error.message, hint=error.hint
                    )
                    picture.add("index_up", 0, agent=agent.agent)
        yield from picture.families.values()

    def _add_queues(self, picture: _Picture) -> None:
        # Imports redis, which is not needed without a queue.
        from shared.queue import depth

        try:
            fleet = depth.read(self._url)
        except QueueError as error:
            self._log.warning("redis.unreachable", error=error.message, hint=error.hint)
            picture.add("redis_up", 0)
            return
        picture.add("redis_up", 1)
        picture.add("redis_memory_bytes", fleet.used_memory)
        for queue in fleet.queues:
            for state in ("waiting", "in_flight", "delayed", "dead"):
                picture.add("queue_messages", getattr(queue, state), queue=queue.name, state=state)
            picture.add("queue_oldest_seconds", queue.oldest_s, queue=queue.name)
            picture.add("queue_messages_per_second", queue.rate_per_minute / 60, queue=queue.name)
            workers = [one for one in fleet.workers if queue.name in one.queues]
            picture.add("workers", len(workers), role=queue.name)
            picture.add("worker_threads", sum(one.threads for one in workers), role=queue.name)
        for one in fleet.workers:
            labels = {"role": "+".join(one.queues), "host": one.host, "pid": str(one.pid)}
            picture.add("worker_busy_seconds_total", one.busy_s, **labels)

    def _add_agent(self, picture: _Picture, agent: AgentSettings) -> None:
        name = agent.agent
        rows = of_agent(agent)
        picture.add("files_behind", self._files_behind(agent), agent=name)
        picture.add("index_up", 1, agent=name)
        if rows is None:
            return
        vectors = dict(rows.json["vectors"])
        picture.add("vectors_backfill", vectors.pop("backfill"), agent=name)
        for state, count in vectors.items():
            picture.add("vectors", count, agent=name, state=state)
        picture.add("vectors_per_second", rows.json["vectorsPerSecond"], agent=name)
        picture.add("vectors_embedded_total", rows.json["embeddedTotal"], agent=name)
        picture.add("vectors_cached_total", rows.json["cachedTotal"], agent=name)
        picture.add("requests_out", rows.json["requestsOut"], agent=name)
        for provider in rows.providers:
            labels = {"agent": name, "provider": provider["name"]}
            for each in provider["modes"]:
                picture.add("provider_breaker", BREAKER[each["state"]], **labels, mode=each["mode"])
            hold_s = max(0.0, (provider["holdUntil"] or 0.0) - time.time())
            picture.add("provider_paused", int(provider["state"] == "paused"), **labels)
            picture.add("provider_failures", provider["failures"], **labels)
            picture.add("provider_hold_seconds", hold_s, **labels)

    def _files_behind(self, agent: AgentSettings) -> int:
        at, count = self._looked.get(agent.agent, (-LOOK_EVERY_S, 0))
        if time.monotonic() - at >= LOOK_EVERY_S:
            try:
                with closing(driver.open_reader(agent.index_path)) as reader:
                    known = ledger_of(reader)
            except IndexMissing:
                known = Known()
            count = look(agent, choose(agent), known).changes.count
            self._looked[agent.agent] = (time.monotonic(), count)
        return count


class _Picture:
    """Metric families by name, made when their first value comes."""

    def __init__(self) -> None:
        self.families: dict[str, Any] = {}

    def add(self, name: str, value: float, **labels: str) -> None:
        family = self.families.get(name)
        if family is None:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(PREFIX + name, METRICS[name], labels=list(labels))
            self.families[name] = family
        family.add_metric(list(labels.values()), value)


class MetricsServer:
    """Serves the metrics over HTTP from a thread; a context manager."""

    def __init__(self, collector: FleetCollector, *, host: str, port: int) -> None:
        self._registry = _registry(collector)
        self._host = host
        self._port = port

    def __enter__(self) -> MetricsServer:
        try:
            self._server, self._thread = start_http_server(self._port, self._host, self._registry)
        except OSError as error:
            raise MemlineError(
                f"cannot serve metrics on {self._host}:{self._port}: {error.strerror}",
                hint="memline metrics --port 9465",
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it is; with port 0 the one that was free."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_port}/metrics"


def page(collector: FleetCollector) -> str:
    """The metrics as text, once."""
    return generate_latest(_registry(collector)).decode()


def _registry(collector: FleetCollector) -> CollectorRegistry:
    # Of its own: the default one adds Python and process metrics of this command, which nobody asked for.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry
