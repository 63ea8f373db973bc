"""Show how search is doing: how many questions, how long they take, and what they do not find."""

from __future__ import annotations

import time
from contextlib import closing

from memline.producers.web.charts_page import SEARCHES, SPAN_NAMES, charts, span_of
from memline.producers.web.page import Data, Page, View
from memline.shared.figures import counters, kept_questions
from memline.shared.index.accounts import AccountFile
from memline.shared.values import value


@value
class Row:
    """The questions of an agent by one face, since the home was made."""

    agent: str
    face: str
    hits: float = 0
    stale: float = 0
    none: float = 0
    error: float = 0

    @property
    def total(self) -> float:
        return self.hits + self.stale + self.none + self.error


def _searches(view: View) -> Data:
    name, span = span_of(view)
    chosen = view.query.get("agent", "")
    agent = view.agent(chosen).agent if chosen or view.access.only else ""
    names = [settings.agent for settings in view.agents]
    agents = [agent] if agent else names
    kept = None
    with closing(AccountFile(view.site.settings.account_path)) as file:
        rows = _rows(file, agents)
        if view.site.settings.serve.log_questions:
            kept = kept_questions.report(file, agents, time.time() - span.every_s * span.count)
    return {
        "names": names,
        "chosen": agent,
        "span": name,
        "spans": SPAN_NAMES,
        "charts": charts(view, view.site.live.read(), span, agent, SEARCHES),
        "rows": rows,
        "kept": kept,
    }


def _rows(file: AccountFile, agents: list[str]) -> list[Row]:
    found: dict[tuple[str, str], dict[str, float]] = {}
    for labels, count in counters.read(file).get(counters.SEARCHES, ()):
        if labels["agent"] in agents:
            counts = found.setdefault((labels["agent"], labels["face"]), {})
            counts[labels["outcome"]] = counts.get(labels["outcome"], 0) + count
    return [Row(agent=agent, face=face, **counts) for (agent, face), counts in sorted(found.items())]


PAGES = (Page(path="/searches", title="Searches", group="History", template="searches.html", data=_searches),)
