"""Show the provider accounts of all agents; probe, pause and resume them."""

from __future__ import annotations

import time

from memline.producers.reports import breakers
from memline.producers.reports import provider_accounts as reports
from memline.producers.web.page import Action, Data, Done, Page, View, command_line
from memline.producers.web.queues_page import check_target
from memline.shared.errors import MemlineError
from memline.shared.queue.fleet_workers import wake


def _providers(view: View) -> Data:
    found, errors = [], []
    for settings in view.agents:
        try:
            found += reports.of_agent(settings, view.site.settings)
        except MemlineError as error:
            errors.append(error.message)
    return {
        "providers": found,
        "errors": errors,
        "now": time.time(),
        "command": command_line("queue", "providers"),
    }


def _probe(view: View) -> Done:
    provider, mode = check_target(view)
    settings = view.agent(view.form.get("agent", ""))
    probed = breakers.probe(settings, provider=provider, mode=mode)
    if probed and view.queue_url:
        wake(view.queue_url, settings.agent)
    words = f"{settings.agent}: {', '.join(probed)}: asked again with the next text."
    if not probed:
        words = f"{settings.agent}: no breaker is open."
    audit = {"agent": settings.agent, "provider": provider, "mode": mode, "probed": len(probed)}
    return Done(words=words, page="/providers", audit=audit)


PAGES = (
    Page(path="/providers", title="Providers", template="providers.html", data=_providers, is_for_all=True),
)

ACTIONS = (Action(path="/providers/probe", verb="probe", run=_probe, is_for_all=True),)
