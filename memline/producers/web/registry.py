"""List the pages and actions of the dashboard, in the order of the navigation."""

from __future__ import annotations

from memline.producers.calls.table import CALLS
from memline.producers.web import (
    configuration_page,
    files_page,
    jobs_page,
    messages_page,
    note_page,
    overview_page,
    providers_page,
    queues_page,
    search_page,
    sessions_page,
)
from memline.producers.web.page import Action, Page, acting

#: A module of pages has `PAGES`, and `ACTIONS` where it has some.
MODULES = (
    overview_page,
    search_page,
    note_page,
    files_page,
    queues_page,
    messages_page,
    jobs_page,
    providers_page,
    sessions_page,
    configuration_page,
)

PAGES: tuple[Page, ...] = tuple(page for module in MODULES for page in module.PAGES)

#: What the forms of the pages do: the actions of the table with a button, and those with a form of their own.
ACTIONS: tuple[Action, ...] = (
    *(acting(call) for call in CALLS.values() if call.button and call.run),
    *(action for module in MODULES for action in getattr(module, "ACTIONS", ())),
)
