"""Read the state of all agents and of the fleet for the pages, at most once in two seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from memline.producers.reports.fleet_state import agent_state, spending
from memline.producers.reports.status import examine
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import MemlineError, QueueError
from memline.shared.finding import Finding
from memline.shared.findings.diagnosis import merged, of_common, queue_of
from memline.shared.findings.facts import fleet_at
from memline.shared.values import value

#: Seconds that a reading is shown for, and the part of the time that readings may take: a comparison of 5,000
#: files with their index takes a tenth of a second.
GOOD_FOR_S, SHARE = 2.0, 1 / 20


@value
class State:
    """The state at one moment."""

    #: Seconds since the epoch.
    at: float
    #: What is shown of each agent.
    agents: tuple[dict[str, Any], ...]
    providers: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...]
    spending: dict[str, Any]
    #: Queues and workers as JSON; empty without a queue, or when Redis cannot be asked.
    queues: tuple[dict[str, Any], ...] = ()
    workers: tuple[dict[str, Any], ...] = ()
    #: Why Redis cannot be asked; empty when it can.
    queue_error: str = ""

    def sum(self, name: str) -> float:
        """Add up a figure of all agents."""
        total: float = sum(each[name] for each in self.agents)
        return total


class StateReader:
    """Reads the state when it is asked for. Safe to use from several threads."""

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
                self._state = self._read()
                ended = time.monotonic()
                self._due = ended + max(GOOD_FOR_S, (ended - began) / SHARE)
            return self._state

    def forget(self) -> None:
        """Let the next page read the state anew, because an action has changed it."""
        with self._lock:
            self._due = 0.0

    def _read(self) -> State:
        queue, found, agents = queue_of(self._settings), list[Finding](), list[dict[str, Any]]()
        providers: list[dict[str, Any]] = []
        for settings in self._agents:
            report, of_agent = examine(settings, queue=queue)
            found += of_agent
            status, error, state = report["status"], report["status"].get("error", ""), None
            try:
                state = agent_state(settings, self._settings.prices, queue=queue)
            except MemlineError as fault:
                error = error or fault.message
            providers += state["providers"] if state else ()
            vectors = state["vectors"] if state else {}
            agents.append(
                {
                    "agent": settings.agent,
                    "workspace": status["workspaceDir"],
                    "embedder": f"{status['provider']} {status['model']}".strip(),
                    "files": status["files"],
                    "chunks": status["chunks"],
                    "behind": status["behind"]["files"],
                    "ready": vectors.get("ready", 0),
                    "wanted": vectors.get("wanted", 0) + vectors.get("leased", 0),
                    "failed": vectors.get("failed", 0),
                    "rate": state["vectorsPerSecond"] if state else 0.0,
                    "has_index": state is not None,
                    "error": error,
                }
            )
        answer = fleet_at(queue) if queue else None
        fleet = None if isinstance(answer, QueueError) else answer
        return State(
            at=time.time(),
            agents=tuple(agents),
            providers=tuple(providers),
            findings=merged(of_common(self._settings, self._agents), found),
            spending=spending(self._settings),
            queues=tuple(each.to_json() for each in fleet.queues) if fleet else (),
            workers=tuple(each.to_json() for each in fleet.workers) if fleet else (),
            queue_error=answer.message if isinstance(answer, QueueError) else "",
        )
