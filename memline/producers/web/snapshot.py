"""The state of all agents and of the fleet at one moment, as pages show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memline.producers.reports.fleet_state import eta_s, is_stopped
from memline.producers.web.rendering import age, number
from memline.shared.figures.points import EVERY_S
from memline.shared.finding import OK, Finding
from memline.shared.findings.diagnosis import merged
from memline.shared.values import value
from memline.shared.words import counted, money

if TYPE_CHECKING:
    from memline.shared.queue.depth import Fleet


@value
class AgentFigures:
    """What is read of one agent."""

    agent: str
    #: As `fleet_state.agent_state` has it; None without an index, or when it cannot be read.
    state: dict[str, Any] | None
    #: Files that are newer than the index, or wait for a job.
    files_behind: int
    #: Why the index cannot be read; empty when it can.
    error: str = ""

    def count(self, name: str) -> int:
        return self.state["vectors"][name] if self.state else 0

    @property
    def pending(self) -> int:
        return self.count("wanted") + self.count("leased")

    @property
    def rate(self) -> float:
        return self.state["vectorsPerSecond"] if self.state else 0.0


@value
class Snapshot:
    """The state at one moment; for `only`, an agent's id, of this agent alone, when it is empty of all."""

    #: Seconds since the epoch.
    at: float
    agents: Mapping[str, AgentFigures]
    #: Queues and workers; None without Redis, or when it cannot be reached.
    fleet: Fleet | None
    #: Why Redis cannot be reached; empty when it can.
    fleet_error: str
    #: Roles that the configuration needs.
    expected: tuple[str, ...]
    spending: dict[str, Any]
    has_queue: bool
    #: Agent -> what is wrong, and what is well; under the empty name what is of the installation.
    findings: Mapping[str, tuple[Finding, ...]]
    #: When all files were compared with the index, seconds since the epoch; 0: not yet.
    files_at: float

    @property
    def oldest_s(self) -> float:
        """Age of the oldest message that waits on any queue, in seconds."""
        return max((queue.oldest_s for queue in self.fleet.queues), default=0.0) if self.fleet else 0.0

    def of(self, only: str) -> list[AgentFigures]:
        return [each for each in self.agents.values() if only in ("", each.agent)]

    def told(self, only: str) -> tuple[Finding, ...]:
        """Return what is wrong, most urgent first, and what is well."""
        names = ("", *self.agents) if not only else (only,)
        unique = {
            (each.code, each.agent, each.subject, each.what): each
            for name in names
            for each in self.findings.get(name, ())
        }
        return merged(unique.values())

    def figures(self, only: str) -> dict[str, str]:
        """Return the numbers that pages show live, as they are shown."""
        agents = self.of(only)
        counts = {name: sum(each.count(name) for each in agents) for name in ("wanted", "leased", "failed")}
        rate = sum(each.rate for each in agents)
        states = [each.state for each in agents if each.state]
        eta = eta_s(counts, rate, is_stopped=any(map(is_stopped, states)))
        figures = {
            "files_behind": number(sum(each.files_behind for each in agents)),
            "wanted": number(counts["wanted"] + counts["leased"]),
            "rate": number(rate),
            "eta": "–" if eta is None else age(eta),
            "pace": self._pace(only, counts, rate, eta),
            "failed": number(counts["failed"]),
        }
        if only:
            return figures
        figures |= self._spent()
        if self.has_queue:
            figures |= self._fleet_figures()
        return figures

    def _spent(self) -> dict[str, str]:
        """Say what was spent today as a figure, and the words below it."""
        today = self.spending["today"]
        cost, tokens = today["cost"], today["unpricedTokens"]
        if tokens and not cost:
            return {"spent": number(tokens), "spent_more": "tokens without a price"}
        more = f"and {counted(tokens, 'token')} without a price" if tokens else ""
        return {"spent": money(cost), "spent_more": more}

    def _pace(self, only: str, counts: Mapping[str, int], rate: float, eta: float | None) -> str:
        """Say how fast vectors come and when all that are wanted are there, or what they wait for."""
        pending = counts["wanted"] + counts["leased"]
        if not pending:
            return self._rest(self.of(only))
        halting = [each for each in self.told(only) if each.halts]
        if first := next((each for each in sorted(halting, key=lambda each: each.passes)), None):
            return self.roles if first.code == "role_missing" and self.roles_missing else first.halts
        if eta is None:
            return "none came in the last minute"
        return f"rate {number(rate)}/s, ETA {age(eta)}"

    def _rest(self, agents: Sequence[AgentFigures]) -> str:
        """Say what there is where no vector is wanted."""
        count = {name: sum(each.count(name) for each in agents) for name in ("ready", "paused", "cancelled")}
        if count["paused"]:
            return f"{counted(count['paused'], 'other', 'wait')} for a paused job"
        if count["cancelled"]:
            return f"{counted(count['cancelled'], 'other', 'were')} cancelled"
        if not count["ready"]:
            return "no vector is there yet"
        if any(each.state is None for each in agents):
            return "an agent has no index yet"
        if any(each.files_behind for each in agents):
            return "files are behind"
        return "the others are there" if any(each.count("failed") for each in agents) else "all are there"

    @property
    def roles_missing(self) -> tuple[str, ...]:
        """The roles that the configuration needs and no worker has.

        None where no finding says so: a Redis without memory for a heartbeat does not tell who is alive.
        """
        if self.fleet is None or all(each.code != "role_missing" for each in self.told("")):
            return ()
        expected = [queue for queue in self.fleet.queues if queue.needs_worker(self.expected)]
        return tuple(dict.fromkeys(queue.role for queue in expected if not self.fleet.is_served(queue)))

    @property
    def roles(self) -> str:
        """Say which roles are missing."""
        missing = self.roles_missing
        return f"roles missing: {', '.join(missing)}" if missing else "no role is missing"

    def _fleet_figures(self) -> dict[str, str]:
        if self.fleet is None:
            return dict.fromkeys(("oldest", "dead", "workers"), "–") | {
                "workers_expected": str(len(self.expected))
            }
        # Where a fleet has several index hosts, most roles are expected on each.
        alive = [
            queue
            for queue in self.fleet.queues
            if queue.role in self.expected and self.fleet.is_served(queue)
        ]
        expected = [
            queue for queue in self.fleet.queues if queue in alive or queue.needs_worker(self.expected)
        ]
        return {
            "oldest": age(self.oldest_s),
            "dead": number(sum(queue.dead for queue in self.fleet.queues)),
            "workers": str(len(alive)),
            "workers_expected": str(len(expected)),
        }

    def topics(self, only: str) -> dict[str, object]:
        """Return what each topic of the pages depends on: a page asks again for what changed."""
        agents = self.of(only)
        states = [each.state for each in agents]
        topics: dict[str, object] = {
            "agents": [(each.agent, each.error, each.files_behind, each.state) for each in agents],
            "jobs": [state["jobs"] for state in states if state],
            # Not what is well: it has counts and versions, and is read when the page is opened.
            "findings": [(each.code, each.agent, each.what) for each in self.told(only) if each.level != OK],
            # For the charts, and for what depends on the time alone.
            "points": int(self.at // EVERY_S),
        }
        if not only:
            topics["providers"] = [state["providers"] for state in states if state]
            topics["spending"] = self.spending
            topics["queues"] = self.fleet.queues if self.fleet else self.fleet_error
            # Without the times, which change with every heartbeat.
            workers = self.fleet.workers if self.fleet else ()
            topics["workers"] = [(each.id, each.threads_of, round(each.busy_s)) for each in workers]
        return topics
