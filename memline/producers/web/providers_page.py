"""Show the provider accounts of all agents; probe, pause and resume them."""

from __future__ import annotations

import time

from memline.producers.reports import provider_accounts as reports
from memline.producers.web.page import Data, Page, View, command_line
from memline.shared.errors import MemlineError


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


PAGES = (
    Page(path="/providers", title="Providers", template="providers.html", data=_providers, is_for_all=True),
)
