"""The state of all agents and of the fleet at one moment, as pages show it, and the lines of charts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memline.producers.reports.fleet_state import eta_s, is_stopped
from memline.producers.web.rendering import age, money, number
from memline.shared.values import value

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
    #: Answers 429 of all accounts in the last day.
    limited: int
    has_queue: bool

    @property
    def oldest_s(self) -> float:
        """Age of the oldest message that waits on any queue, in seconds."""
        return max((queue.oldest_s for queue in self.fleet.queues), default=0.0) if self.fleet else 0.0

    def of(self, only: str) -> list[AgentFigures]:
        return [each for each in self.agents.values() if only in ("", each.agent)]

    def point(self, only: str, limited: int) -> Point:
        """Return the point of the charts for this moment; `limited`: 429s since the last one."""
        agents = self.of(only)
        return Point(
            backlog=sum(each.pending for each in agents),
            rate=sum(each.rate for each in agents),
            oldest_s=0.0 if only else self.oldest_s,
            limited=0 if only else limited,
        )

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
            "pace": _pace(sum(each.pending for each in agents), rate, eta),
            "failed": number(counts["failed"]),
        }
        if only:
            return figures
        figures["spent"] = money(self.spending["today"]["cost"])
        if self.has_queue:
            figures |= self._fleet_figures()
        return figures

    def _fleet_figures(self) -> dict[str, str]:
        if self.fleet is None:
            return dict.fromkeys(("oldest", "dead", "workers"), "–") | {
                "workers_expected": str(len(self.expected))
            }
        # Where a fleet has several index hosts, most roles are expected on each.
        expected = [queue for queue in self.fleet.queues if queue.role in self.expected]
        alive = [queue for queue in expected if self.fleet.is_served(queue)]
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
            # For the charts, and for what depends on the time alone.
            "points": int(self.at // HOUR[0]),
        }
        if not only:
            topics["providers"] = [state["providers"] for state in states if state]
            topics["spending"] = self.spending
            topics["queues"] = self.fleet.queues if self.fleet else self.fleet_error
            # Without the times, which change with every heartbeat.
            workers = self.fleet.workers if self.fleet else ()
            topics["workers"] = [(each.id, each.threads_of, round(each.busy_s)) for each in workers]
        return topics


def _pace(pending: int, rate: float, eta: float | None) -> str:
    """Say how fast vectors come, and when all that are wanted are there."""
    if not pending:
        return "all are there"
    return (
        f"{number(rate)} a second, ready in {age(eta)}" if eta is not None else "none came in the last minute"
    )


#: Seconds between two points, and how many are kept: an hour and a day.
HOUR, DAY = (15, 240), (300, 288)

#: Width and height of a chart in its own units.
WIDTH, HEIGHT = 240, 48


@value
class Point:
    """What the charts show of one moment."""

    #: Vectors wanted or in flight.
    backlog: float
    #: Vectors a second.
    rate: float
    #: Age of the oldest message that waits, in seconds.
    oldest_s: float
    #: Answers 429 since the point before.
    limited: float

    def joined(self, other: Point) -> Point:
        """Join two points of one period: the largest values, and all 429s."""
        return Point(
            backlog=max(self.backlog, other.backlog),
            rate=max(self.rate, other.rate),
            oldest_s=max(self.oldest_s, other.oldest_s),
            limited=self.limited + other.limited,
        )


class Ring:
    """Points that are `every_s` seconds apart, the last `count` of them; a moment without one stays empty."""

    def __init__(self, every_s: int, count: int) -> None:
        self.every_s = every_s
        self.count = count
        #: (number of the period since the epoch, its point)
        self._points: deque[tuple[int, Point]] = deque(maxlen=count)

    def add(self, at: float, point: Point) -> None:
        """Add a point at `at`, seconds since the epoch; those of a period are joined."""
        period = int(at // self.every_s)
        if self._points and self._points[-1][0] == period:
            _, before = self._points.pop()
            point = before.joined(point)
        self._points.append((period, point))

    def values(self, now: float, name: str) -> list[float | None]:
        """Return `count` values of this field up to now, oldest first; None where nothing was seen."""
        last = int(now // self.every_s)
        known = {period: getattr(point, name) for period, point in self._points}
        return [known.get(period) for period in range(last - self.count + 1, last + 1)]


class Series:
    """The points of all charts: the last hour and the last day."""

    def __init__(self) -> None:
        self.hour = Ring(*HOUR)
        self.day = Ring(*DAY)

    def add(self, at: float, point: Point) -> None:
        self.hour.add(at, point)
        self.day.add(at, point)


@value
class Chart:
    """A line through values, as points of an SVG of WIDTH by HEIGHT."""

    #: One text of `x,y x,y …` for each run of values without a gap.
    lines: tuple[str, ...]
    top: float
    last: float | None
    width: int = WIDTH
    height: int = HEIGHT


def draw(values: Sequence[float | None], least: float = 0.0) -> Chart:
    """Draw values from left to right, zero at the bottom and the largest at the top.

    Where all are smaller than `least`, that is the top: small values must not look like large ones.
    """
    top = max((each for each in values if each is not None), default=0.0)
    scale = max(top, least) or 1.0
    step = WIDTH / max(1, len(values) - 1)
    runs: list[list[str]] = [[]]
    for place, each in enumerate(values):
        if each is None:
            runs.append([])
            continue
        y = HEIGHT - 1 - each / scale * (HEIGHT - 2)
        runs[-1].append(f"{place * step:.1f},{y:.1f}")
    # A single point is no line: it is drawn as a short one.
    lines = (
        " ".join(
            run
            if len(run) > 1
            else [*run, f"{float(run[0].split(',')[0]) + step:.1f},{run[0].split(',')[1]}"]
        )
        for run in runs
        if run
    )
    last = next((each for each in reversed(values) if each is not None), None)
    return Chart(lines=tuple(lines), top=top, last=last)
