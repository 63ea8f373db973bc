"""Write a point of the figures of a home every 15 seconds, from whichever of `up`, `serve` and `store` runs.

All of them try; one has its turn (`shared.figures.points`), and keeps when each finding was first seen. What
a point costs is kept low: the rows of an agent are read when its index was written, and where counting takes
long for a small share of the time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress

from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexFault, MemlineError, QueueError
from memline.shared.figures import counters, first_seen, points
from memline.shared.figures.points import EVERY_S, LABEL, TURN_S, Point
from memline.shared.finding import Finding
from memline.shared.findings.diagnosis import codes_from, of_agent, of_common, queue_of
from memline.shared.index import identities, meta, vectors
from memline.shared.index.accounts import AccountFile
from memline.shared.index.driver import reading_if_any
from memline.shared.logs import Log
from memline.shared.queue import depth
from memline.shared.scheduling import leases
from memline.shared.sync.plan import IndexState, make_plan, read_index_state
from memline.shared.values import replace, value

#: Agents of a point that have series of their own: those with the most of each. All are in the sums.
MOST_AGENTS = 50

#: Reading the rows of an agent takes at most this part of the time: counting a million texts takes 0.2 s.
READ_SHARE = 1 / 100

#: Seconds between two looks at what is wrong with an agent whose index was not written and with which nothing
#: was, and the part of the time that looks at all agents may take: one at 5,000 files takes 0.1 s.
RESTING_S, LOOK_SHARE = 60.0, 1 / 100

#: What is not seen from here: what a backend meets by itself, and what loading the configuration says.
_NOT_SEEN = {"qmd_failing", "settings_without_effect"}

#: Gauges: texts that wait, the oldest message and dead messages of the fleet, memory of Redis.
BACKLOG, OLDEST, DEAD, REDIS_MEMORY = "backlog", "oldest", "dead", "redis_memory"

#: Sums: vectors stored, questions and their seconds by agent; calls of providers and their seconds.
VECTORS, SEARCHES, SEARCH_SECONDS, CALLS, CALL_SECONDS = (
    "vectors",
    "searches",
    "search_le",
    "calls",
    "call_le",
)

#: The sum of what a job of an agent has embedded: those that are open, or ended since the last point.
JOB_TEXTS = "job_texts"

#: Series whose first label is an agent; empty: all of them together.
_OF_AGENTS = (BACKLOG, VECTORS, SEARCHES, SEARCH_SECONDS)


@value
class _Known:
    """What the rows of an agent said."""

    mark: object
    #: Monotonic.
    read_at: float
    cost_s: float
    backlog: int
    vectors: int
    #: Token of a job -> (seconds since the epoch when it was made, texts embedded).
    jobs: Mapping[str, tuple[float, int]]


@value
class _Look:
    """The last look at what is wrong with an agent."""

    mark: object
    #: Monotonic.
    at: float
    cost_s: float
    found: bool


class Sampler:
    """Writes the points of one home while it is its turn. For one thread."""

    def __init__(self, settings_of: Callable[[], Settings], *, owner: str = "") -> None:
        """`settings_of` returns the settings that hold now."""
        self._settings_of = settings_of
        self._owner = owner or leases.current_owner()
        self._known: dict[str, _Known] = {}
        self._looks: dict[str, _Look] = {}

    def sample(self, now: float) -> bool:
        """Write the point of this moment; False when another process has the turn. Raises MemlineErrors."""
        settings = self._settings_of()
        with closing(AccountFile(settings.account_path)) as file:
            turn = points.take_turn(file, self._owner, now, is_alive=leases.is_owner_alive)
            if turn is None:
                return False
            gauges, totals, before = self._agents(settings, turn.at)
            turn = replace(turn, totals=before | dict(turn.totals))
            gauges |= _fleet(settings)
            totals |= _counted(counters.read(file))
            since = points.since(turn, totals, now)
            last, sums = _with_all(gauges), _with_all(dict(since.sums))
            kept = _busiest(gauges, dict(since.sums))
            point = replace(since, last=_bounded(last, kept), sums=_bounded(sums, kept))
            points.write(file, point, totals, now)
            self._note_findings(settings, file, now)
        return True

    def end(self) -> None:
        """Let another process go on at once."""
        with closing(AccountFile(self._settings_of().account_path)) as file, suppress(MemlineError):
            points.end_turn(file, self._owner)

    def _note_findings(self, settings: Settings, file: AccountFile, now: float) -> None:
        """Keep since when what is wrong is so, of the agents whose turn it is and of all together."""
        agents = list(settings.agents.values())
        found: list[Finding] = []
        looked: dict[str, frozenset[str]] = {}
        codes = (codes_from(disk=False) | codes_from(disk=True)) - _NOT_SEEN
        for agent in agents:
            mark = index_mark(agent)
            last, began = self._looks.get(agent.agent), time.monotonic()
            if last is not None:
                is_still = last.mark == mark and not last.found
                pause_s = max(RESTING_S if is_still else 0.0, len(agents) * last.cost_s / LOOK_SHARE)
                if began - last.at < pause_s:
                    continue
            began_s = time.thread_time()
            with suppress(MemlineError):
                seen = _findings(agent, queue_of(settings), now)
                found += seen
                looked[agent.agent] = codes
                cost_s = time.thread_time() - began_s
                self._looks[agent.agent] = _Look(mark=mark, at=began, cost_s=cost_s, found=bool(seen))
        with suppress(MemlineError):
            found += of_common(settings, agents, file=file)
            looked[""] = codes
        first_seen.note(file, found, looked, now)

    def _agents(
        self, settings: Settings, last_at: float
    ) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
        """Return the backlog of each agent; the vectors that it and each of its jobs have stored; and what
        the jobs had before that are older than the last point, for those that were in none.
        """
        gauges: dict[str, float] = {}
        totals: dict[str, float] = {}
        before: dict[str, float] = {}
        for agent in settings.agents.values():
            with suppress(MemlineError):
                known = self._agent(agent)
                gauges[BACKLOG + LABEL + agent.agent] = known.backlog
                totals[VECTORS + LABEL + agent.agent] = known.vectors
                for token, (made_at, texts) in known.jobs.items():
                    key = LABEL.join((JOB_TEXTS, agent.agent, token))
                    totals[key] = texts
                    if made_at < last_at:
                        before[key] = texts
        return gauges, totals, before

    def _agent(self, agent: AgentSettings) -> _Known:
        mark = index_mark(agent)
        known, now = self._known.get(agent.agent), time.monotonic()
        if known and (known.mark == mark or now - known.read_at < known.cost_s / READ_SHARE):
            return known
        began_s = time.thread_time()
        backlog, stored, moving = 0, 0, dict[str, tuple[float, int]]()
        with reading_if_any(agent.index_path) as reader:
            if reader is not None:
                target = identities.target(reader)
                counts = vectors.backlog(reader, target.id) if target else vectors.Backlog()
                backlog = counts.wanted + counts.leased
                stored = meta.get(reader, meta.EMBEDDED_TOTAL, 0)
                rows = reader.execute(_JOBS, (time.time() - TURN_S,)).fetchall()
                moving = {token: (made_ns / 1e9, texts) for token, made_ns, texts in rows}
        cost_s = time.thread_time() - began_s
        known = _Known(mark=mark, read_at=now, cost_s=cost_s, backlog=backlog, vectors=stored, jobs=moving)
        self._known[agent.agent] = known
        return known


_JOBS = "SELECT token, created_ns, texts_done FROM jobs WHERE ended_at = 0 OR ended_at > ?"


def _findings(agent: AgentSettings, queue: str, now: float) -> tuple[Finding, ...]:
    """Return what is wrong with an agent by its rows, Redis and the disk."""
    choice, state = choose(agent), IndexState()
    try:
        with reading_if_any(agent.index_path) as reader:
            if reader is not None:
                state = read_index_state(reader)
            plan = make_plan(agent, choice, state)
            return of_agent(agent, choice=choice, index=reader, plan=plan, queue=queue, now=now)
    except IndexFault as error:
        plan = make_plan(agent, choice, IndexState())
        return of_agent(agent, choice=choice, fault=error, plan=plan, queue=queue, now=now)


def _fleet(settings: Settings) -> dict[str, float]:
    """Return the gauges of the fleet; none without Redis, or when it cannot be reached."""
    if not settings.queue.url:
        return {}
    try:
        fleet = depth.read(settings.queue.address)
    except QueueError:
        return {}
    return {
        OLDEST: max((queue.oldest_s for queue in fleet.queues), default=0.0),
        DEAD: sum(queue.dead for queue in fleet.queues),
        REDIS_MEMORY: fleet.used_memory,
    }


#: Counter -> the series that has it, and those of its labels that the series keeps.
_SERIES = {
    counters.SEARCHES: (SEARCHES, ("agent",)),
    counters.SECONDS: (SEARCH_SECONDS, ("agent", "le")),
    counters.ASKED: (CALLS, ("provider", "kind")),
    counters.ANSWERED: (CALL_SECONDS, ("provider", "le")),
}


def _counted(found: counters.Counted) -> dict[str, float]:
    totals: dict[str, float] = {}
    for counter, (name, kept) in _SERIES.items():
        for labels, count in found.get(counter, ()):
            key = LABEL.join((name, *(labels[label] for label in kept)))
            totals[key] = totals.get(key, 0.0) + count
    return totals


def _with_all(figures: dict[str, float]) -> dict[str, float]:
    """Add the series of all agents together, whose label is empty."""
    whole: dict[str, float] = {}
    for key, count in figures.items():
        name, *labels = key.split(LABEL)
        if name in _OF_AGENTS:
            of_all = LABEL.join((name, "", *labels[1:]))
            whole[of_all] = whole.get(of_all, 0.0) + count
    return figures | whole


def _bounded(figures: dict[str, float], kept: set[str]) -> dict[str, float]:
    """Leave out what is zero of an agent, and agents that are not kept."""

    def is_kept(key: str, count: float) -> bool:
        name, agent, *_ = (*key.split(LABEL), "")
        return name not in (*_OF_AGENTS, JOB_TEXTS) or not agent or bool(count and agent in kept)

    return {key: count for key, count in figures.items() if is_kept(key, count)}


def leaves_out(point: Point, agent: str) -> bool:
    """Tell whether a point has the busiest agents alone, and this one is not among them; all together are."""
    if not agent:
        return False
    labels = (key.split(LABEL) for key in (*point.last, *point.sums))
    agents = {parts[1] for parts in labels if parts[0] in (*_OF_AGENTS, JOB_TEXTS) and len(parts) > 1} - {""}
    return len(agents) >= MOST_AGENTS and agent not in agents


def _busiest(*figures: dict[str, float]) -> set[str]:
    """Name the agents with the most to show."""
    counts: dict[str, float] = {}
    for key, count in (item for each in figures for item in each.items()):
        name, agent, *_ = (*key.split(LABEL), "")
        if name in _OF_AGENTS and agent:
            counts[agent] = counts.get(agent, 0.0) + count
    return {*sorted(counts, key=lambda agent: -counts[agent])[:MOST_AGENTS]}


@contextmanager
def sampling(settings_of: Callable[[], Settings]) -> Iterator[None]:
    """Write points, in a thread, while a block runs; `settings_of` returns the settings that hold now."""
    sampler, is_over, log = Sampler(settings_of), threading.Event(), Log("sampling")

    def run() -> None:
        while not is_over.wait(EVERY_S - time.time() % EVERY_S):
            try:
                sampler.sample(time.time())
            except MemlineError as error:
                log.warning("point.not_written", error=error.message, hint=error.hint)
        sampler.end()

    thread = threading.Thread(target=run, name="sampling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def index_mark(agent: AgentSettings) -> list[object]:
    """Return what changes with every commit to an index."""
    return [_mark(f"{agent.index_path}{ending}") for ending in ("", "-wal")]


def _mark(path: str) -> tuple[int, int, int] | None:
    """Return what changes with every commit to a file; None when it is missing or empty."""
    with suppress(OSError):
        status = os.stat(path)
        return (status.st_ino, status.st_size, status.st_mtime_ns) if status.st_size else None
    return None
