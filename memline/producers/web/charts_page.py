"""Show the last hour, day and month of a home from points that survive restarts, and how search is doing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

from memline.producers.web.charts import Chart, Values, draw
from memline.producers.web.page import Data, Page, View
from memline.producers.web.rendering import age, number, size
from memline.producers.web.snapshot import Snapshot
from memline.shared import sampling
from memline.shared.embedders.protocol import OK, RATE_LIMIT
from memline.shared.errors import BadRequest
from memline.shared.figures import counters, kept_questions
from memline.shared.figures.counters import percentile
from memline.shared.figures.points import LABEL, SPANS, Point, Span, read
from memline.shared.index.accounts import AccountFile
from memline.shared.scheduling import budget
from memline.shared.values import value
from memline.shared.words import money

#: How a span is called.
SPAN_NAMES = {"hour": "Last hour", "day": "Last 24 hours", "month": "Last 30 days"}

#: Days of the chart of money.
DAYS = 30

#: How a call of a provider ended -> what the chart of errors calls it.
_ERRORS = {RATE_LIMIT: "429", "stop": "401, quota", "later": "5xx, network", "timeout": "timeout"}

Points = Sequence[Point | None]


def seconds(amount: float) -> str:
    """Write a short length of time."""
    return f"{amount * 1_000:,.0f} ms" if amount < 1 else f"{amount:,.1f} s"


@value
class Kind:
    """One chart: what it is called, how its values are written, and where they come from."""

    label: str
    words: Callable[[float], str]
    #: (points, agent or empty for all) -> the values of each series.
    series: Callable[[Points, str], Mapping[str, Values]]
    #: The value that the axis reaches at least.
    least: float = 0.0
    #: The value of now, as a tile says it; the chart ends with it.
    now: Callable[[Snapshot, str], float | None] | None = None
    #: Whether it is of the whole home: not for a token of one agent, nor for a chosen agent.
    is_of_home: bool = False
    needs_queue: bool = False


def gauge(name: str, *, of_agent: bool = False) -> Callable[[Points, str], Mapping[str, Values]]:
    """Return the values of a gauge: the largest of each column."""

    def series(points: Points, agent: str) -> Mapping[str, Values]:
        key = name + LABEL + agent if of_agent else name
        return {"": [_largest(point, key, agent) for point in points]}

    return series


def _largest(point: Point | None, key: str, agent: str) -> float | None:
    if point and (key in point.last or (agent and not sampling.leaves_out(point, agent))):
        return point.largest(key)
    return None


def rate(name: str, per_s: float) -> Callable[[Points, str], Mapping[str, Values]]:
    """Return the values of a sum, for so many seconds."""

    def series(points: Points, agent: str) -> Mapping[str, Values]:
        key = name + LABEL + agent
        return {"": [_per_second(point, key, per_s) for point in points]}

    return series


def _per_second(point: Point | None, key: str, per_s: float) -> float | None:
    if not point or not point.seconds:
        return None
    if key not in point.sums and sampling.leaves_out(point, key.split(LABEL)[1]):
        return None
    return point.sums.get(key, 0.0) / point.seconds * per_s


def percentiles(name: str) -> Callable[[Points, str], Mapping[str, Values]]:
    """Return p50 and p95 of an agent's questions, or of the calls of each provider; None without any."""

    def series(points: Points, label: str) -> Mapping[str, Values]:
        names = [label] if label or name == sampling.SEARCH_SECONDS else _labels(points, name)
        return {
            f"{of} {words}".strip(): [_percentile(point, name, of, share) for point in points]
            for of in names
            for words, share in (("p50", 0.5), ("p95", 0.95))
        }

    return series


def _percentile(point: Point | None, name: str, label: str, share: float) -> float | None:
    begin = name + LABEL + label + LABEL
    sums = point.sums.items() if point else ()
    return percentile({key[len(begin) :]: count for key, count in sums if key.startswith(begin)}, share)


def _labels(points: Points, name: str) -> list[str]:
    """Return the first labels of a series."""
    keys = {key for point in points if point for key in point.sums if key.startswith(name + LABEL)}
    return sorted({key.split(LABEL)[1] for key in keys})


def errors(points: Points, _agent: str) -> Mapping[str, Values]:
    """Return how many calls of all providers ended with each kind of error."""
    found: dict[str, list[float | None]] = {
        name: [0.0 if point and point.seconds else None for point in points] for name in ("429", "401, quota")
    }
    for place, point in enumerate(points):
        for key, count in point.sums.items() if point else ():
            name, *labels = key.split(LABEL)
            if name == sampling.CALLS and labels[1] != OK:
                words = _ERRORS.get(labels[1], labels[1].replace("_", " "))
                values = found.setdefault(words, [0.0 if each and each.seconds else None for each in points])
                values[place] = (values[place] or 0.0) + count
    return found


KINDS = (
    Kind(
        label="Vectors wanted",
        words=number,
        series=gauge(sampling.BACKLOG, of_agent=True),
        least=10,
        now=lambda snapshot, only: sum(each.pending for each in snapshot.of(only)),
    ),
    Kind(
        label="Vectors per second",
        words=number,
        series=rate(sampling.VECTORS, 1),
        least=1,
        now=lambda snapshot, only: sum(each.rate for each in snapshot.of(only)),
    ),
    Kind(
        label="Oldest message",
        words=age,
        series=gauge(sampling.OLDEST),
        least=10,
        now=lambda snapshot, _: snapshot.oldest_s if snapshot.fleet else None,
        is_of_home=True,
        needs_queue=True,
    ),
    Kind(label="Errors of providers", words=number, series=errors, least=10, is_of_home=True),
    Kind(label="Searches per minute", words=number, series=rate(sampling.SEARCHES, 60), least=10),
    Kind(label="Time of a search", words=seconds, series=percentiles(sampling.SEARCH_SECONDS), least=0.01),
    Kind(
        label="Latency of providers",
        words=seconds,
        series=percentiles(sampling.CALL_SECONDS),
        is_of_home=True,
    ),
    Kind(
        label="Dead messages",
        words=number,
        series=gauge(sampling.DEAD),
        least=10,
        now=lambda snapshot, _: sum(each.dead for each in snapshot.fleet.queues) if snapshot.fleet else None,
        is_of_home=True,
        needs_queue=True,
    ),
    Kind(
        label="Memory of Redis",
        words=size,
        series=gauge(sampling.REDIS_MEMORY),
        now=lambda snapshot, _: snapshot.fleet.used_memory if snapshot.fleet else None,
        is_of_home=True,
        needs_queue=True,
    ),
)


#: Those of searches.
SEARCHES = tuple(kind for kind in KINDS if kind.label in ("Searches per minute", "Time of a search"))


def charts(
    view: View, snapshot: Snapshot, span: Span, agent: str, kinds: Sequence[Kind] = KINDS
) -> list[Chart]:
    """Draw the charts of a span, of one agent or of all; those of the home for a token that opens all."""
    with closing(AccountFile(view.site.settings.account_path)) as file:
        points = read(file, span, snapshot.at)
    begin_s = (int(snapshot.at // span.column_s) - len(points) + 1) * span.column_s
    drawn = []
    for kind in kinds:
        if (kind.is_of_home and (agent or not view.is_owner)) or (
            kind.needs_queue and not view.site.has_queue
        ):
            continue
        series = {name: [*values] for name, values in kind.series(points, agent).items()}
        if kind.now is not None:
            now = series[""][-1] = kind.now(snapshot, agent)
            if now is None:
                # The words would be those of the point before.
                series[""][-2] = None
        drawn.append(
            draw(kind.label, series, kind.words, begin_s=begin_s, step_s=span.column_s, least=kind.least)
        )
    return drawn


def money_chart(view: View, now: float) -> Chart:
    """Draw what each provider cost each day (UTC), and the ceiling of a day."""
    settings = view.site.settings
    with closing(AccountFile(settings.account_path)) as file:
        spent = budget.spent_by_day(file, now, DAYS)
    today = datetime.fromtimestamp(now, UTC).date()
    days = [(today - timedelta(days=back)).isoformat() for back in reversed(range(DAYS))]
    providers = sorted({provider for _, provider in spent})
    return draw(
        "Money a day (UTC)",
        {provider: [spent.get((day, provider), 0.0) for day in days] for provider in providers},
        money,
        begin_s=datetime.fromisoformat(days[0]).replace(tzinfo=UTC).timestamp(),
        step_s=86_400,
        least=0.01,
        limit=settings.limits.max_cost_per_day or None,
        is_stacked=True,
    )


def span_of(view: View) -> tuple[str, Span]:
    """Return the span that a page is asked for. Raises BadRequest."""
    name = view.query.get("span", "hour")
    if name not in SPANS:
        raise BadRequest(
            f"{name[:20]!r} is not a valid span", hint=f"give as span one of: {', '.join(SPANS)}"
        )
    return name, SPANS[name]


def _shown(view: View) -> tuple[list[str], Span, dict[str, object]]:
    """Return the agents that a page is asked about, its span, and what its template has of its form."""
    name, span = span_of(view)
    chosen = view.query.get("agent", "")
    agent = view.agent(chosen).agent if chosen or view.access.only else ""
    names = [settings.agent for settings in view.agents]
    form: dict[str, object] = {"names": names, "chosen": agent, "span": name, "spans": SPAN_NAMES}
    return [agent] if agent else names, span, form


def _show(view: View) -> Data:
    _, span, form = _shown(view)
    agent = str(form["chosen"])
    return {
        **form,
        "charts": charts(view, view.site.live.read(), span, agent),
        "money": money_chart(view, time.time()) if view.is_owner and not agent else None,
    }


#: How a question ended.
_OUTCOMES = ("hits", "stale", "none", "error")


def _searches(view: View) -> Data:
    agents, span, form = _shown(view)
    kept = None
    with closing(AccountFile(view.site.settings.account_path)) as file:
        rows = _rows(file, agents)
        if view.site.settings.serve.log_questions:
            kept = kept_questions.report(file, agents, time.time() - span.every_s * span.count)
    shown = charts(view, view.site.live.read(), span, str(form["chosen"]), SEARCHES)
    return {**form, "charts": shown, "rows": rows, "kept": kept}


def _rows(file: AccountFile, agents: list[str]) -> list[dict[str, object]]:
    """Count the questions of each agent by each face, since the home was made."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for labels, count in counters.read(file).get(counters.SEARCHES, ()):
        if labels["agent"] in agents:
            counts = found.setdefault((labels["agent"], labels["face"]), dict.fromkeys(_OUTCOMES, 0))
            counts[labels["outcome"]] += count
    return [
        {"agent": agent, "face": face, **counts, "total": sum(counts.values())}
        for (agent, face), counts in sorted(found.items())
    ]


PAGES = (
    Page(path="/charts", title="Charts", group="History", template="charts.html", data=_show),
    Page(path="/searches", title="Searches", group="History", template="searches.html", data=_searches),
)
