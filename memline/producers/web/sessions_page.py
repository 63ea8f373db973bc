"""Show the transcripts of an agent and their memory flushes, and flush a session now."""

from __future__ import annotations

from urllib.parse import urlencode

from memline.producers.reports import session_list as reports
from memline.producers.reports.session_list import SET_UP
from memline.producers.web.page import Data, Page, View, command_line
from memline.producers.web.rendering import ROOT

#: Transcripts, and flushes, of a page.
PAGE = 50


def _sessions(view: View) -> Data:
    settings = view.agent(view.query.get("agent", ""))
    first, first_flush = view.number("first", 0), view.number("flush", 0)
    transcripts = reports.transcripts(settings, first=first, limit=PAGE + 1)
    error = ""
    try:
        report = reports.flushes(settings)
    except OSError as problem:
        report = {"enabled": False, "sessions": []}
        error = f"the state of the flushes cannot be read: {problem.strerror or problem}"
    # The nearest to its flush first.
    flushes = sorted(report["sessions"], key=lambda each: -each["tokens"] / (each["threshold"] or 10**9))

    def address(**change: int) -> str:
        query = {"agent": settings.agent, "first": first, "flush": first_flush, **change}
        return f"{ROOT}/sessions?{urlencode(query)}"

    return {
        "names": [each.agent for each in view.agents],
        "chosen": settings.agent,
        "transcripts": transcripts[:PAGE],
        "before": address(first=max(0, first - PAGE)) if first else "",
        "after": address(first=first + PAGE) if len(transcripts) > PAGE else "",
        "is_on": report["enabled"],
        "set_up": SET_UP,
        "error": error,
        "flushes": flushes[first_flush : first_flush + PAGE],
        "flush_before": address(flush=max(0, first_flush - PAGE)) if first_flush else "",
        "flush_after": address(flush=first_flush + PAGE) if len(flushes) > first_flush + PAGE else "",
        "has_queue": view.site.has_queue,
        "command": command_line("--agent", settings.agent, "flush"),
    }


PAGES = (Page(path="/sessions", title="Sessions", template="sessions.html", data=_sessions),)
