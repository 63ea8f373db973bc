"""List the pages and actions of the dashboard, in the order of the navigation."""

from __future__ import annotations

from memline.producers.web import (
    configuration,
    files,
    jobs,
    messages,
    note,
    overview,
    providers,
    queues,
    search,
    sessions,
)
from memline.producers.web.page import Action, Page

#: A module of pages has `PAGES`, and `ACTIONS` where it has some.
MODULES = (overview, search, note, files, queues, messages, jobs, providers, sessions, configuration)

PAGES: tuple[Page, ...] = tuple(page for module in MODULES for page in module.PAGES)

ACTIONS: tuple[Action, ...] = tuple(action for module in MODULES for action in getattr(module, "ACTIONS", ()))
