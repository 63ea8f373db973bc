"""Show the overview: what is behind and what is wrong; plan a reindex; show configuration and audit log."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

from memline.producers.reports.estimate import estimate
from memline.producers.web.charts_page import KINDS, charts
from memline.producers.web.listing import by, listing
from memline.producers.web.page import Data, Page, View, command_line
from memline.producers.web.snapshot import AgentFigures
from memline.shared.config.keys import Setting
from memline.shared.config.show import shown_for_agent, shown_for_all
from memline.shared.figures import kept_actions
from memline.shared.figures.points import SPANS
from memline.shared.finding import OK
from memline.shared.index.accounts import AccountFile

#: Columns of the table of agents, and what they are ordered by; without, those that are behind come first.
_AGENT_KEYS = by(
    agent="agent", behind="files_behind", wanted="pending", rate="rate",
    ready=lambda agent: agent.count("ready"), failed=lambda agent: agent.count("failed"),
)  # fmt: skip

#: Charts of the overview, of those of all (charts_page.KINDS).
_FIRST_CHARTS = KINDS[:4]


def _overview(view: View) -> Data:
    only = view.access.only
    snapshot = view.site.live.read()
    told = view.told()
    return {
        "figures": snapshot.figures(only),
        "agents": listing(view, sorted(snapshot.of(only), key=_busy_first), _AGENT_KEYS),
        # What is worst of each; none where all is well.
        "worst": {
            each.agent: next((found for found in snapshot.told(each.agent) if found.is_trouble), None)
            for each in snapshot.of(only)
        },
        "has_queue": view.is_owner and snapshot.has_queue,
        "findings": [each for each in told if each.finding.level != OK],
        "fine": [each.finding.what for each in told if each.finding.level == OK],
        "at": snapshot.at,
        "files_at": snapshot.files_at,
        "charts": charts(view, snapshot, SPANS["hour"], only, _FIRST_CHARTS),
    }


def _busy_first(agent: AgentFigures) -> tuple[bool, int, str]:
    return not agent.error, -agent.files_behind - agent.pending - agent.count("failed"), agent.agent


def _plan(view: View) -> Data:
    """Show what a reindex would do and cost, once it is asked for: reading all files may take long."""
    force = view.query.get("force") == "1"
    chosen = view.query.get("agent", "")
    plan, command, began = None, "", time.monotonic()
    if view.query.get("plan") == "1":
        settings = view.agent(chosen)
        plan = estimate(settings, force=force, prices=view.site.settings.prices)
        name = "reindex" if view.site.has_queue else "index"
        command = command_line("--agent", settings.agent, name, "--force" * force)
    return {
        "names": [settings.agent for settings in view.agents],
        "chosen": chosen or view.access.only or view.access.default_agent,
        "force": force,
        "plan": plan,
        "words": plan.words() if plan else (),
        "took_s": time.monotonic() - began,
        "has_queue": view.site.has_queue,
        "command": command,
    }


def _configuration(view: View) -> Data:
    loaded, only_set = view.site.loaded, view.query.get("set") == "1"
    chosen = view.query.get("agent", "") or view.access.default_agent
    file, for_all, for_agent = "", dict[str, Setting](), dict[str, Setting]()
    if loaded is not None:
        file = str(loaded.settings.path or "")
        for_all, for_agent = shown_for_all(loaded), shown_for_agent(loaded, view.agent(chosen).agent)
    return {
        "names": [settings.agent for settings in view.agents],
        "chosen": chosen,
        "file": file,
        "for_all": _rows(for_all, file, only_set=only_set),
        "for_agent": _rows(for_agent, file, only_set=only_set),
        "problems": loaded.warnings if loaded else (),
        "only_set": only_set,
        "command": command_line("--agent", chosen, "config", "show"),
    }


def _rows(settings: Mapping[str, Setting], file: str, *, only_set: bool) -> list[dict[str, object]]:
    return [
        {
            "key": key,
            "text": _text(setting.value),
            # The file is named above the table.
            "origin": setting.origin.replace(f"{file}: ", "") if file else setting.origin,
            "is_default": setting.origin == "default",
        }
        for key, setting in settings.items()
        if not only_set or setting.origin != "default"
    ]


def _text(setting: Any) -> str:
    return setting if isinstance(setting, str) and setting else json.dumps(setting, ensure_ascii=False)


#: Lines of the audit log on a page.
PAGE = 100


def _audit(view: View) -> Data:
    where = {name: view.query.get(name, "").strip() for name in ("by", "action")}
    before, only = view.number("before", 0), view.access.only
    with closing(AccountFile(view.site.settings.account_path)) as file:
        lines = kept_actions.listed(file, only, **where, before=before, count=PAGE + 1)
        askers, actions = kept_actions.known(file, only)
    words = {name: text for name, text in where.items() if text}
    more, lines = len(lines) > PAGE, lines[:PAGE]
    return {
        "where": where,
        "askers": askers,
        "actions": actions,
        "lines": lines,
        "first": f"?{urlencode(words)}" if before else "",
        "after": f"?{urlencode({**words, 'before': lines[-1].id})}" if more else "",
        "most": kept_actions.MOST_LINES,
    }


PAGES = (
    Page(path="/", title="Overview", group="Overview", template="overview.html", data=_overview),
    Page(path="/reindex", title="Plan a reindex", template="reindex.html", data=_plan),
    Page(
        path="/configuration",
        title="Configuration",
        group="Configuration",
        template="configuration.html",
        data=_configuration,
        is_for_all=True,
    ),
    Page(path="/audit", title="Audit", group="History", template="audit.html", data=_audit),
)
