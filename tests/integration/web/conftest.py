"""The dashboard of a server of two agents, with a token for both and one for the second."""

import json
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from memline.shared.config.load import Options, load
from tests.support.browser import Browser
from tests.support.http_api import serving

ALL, WORK = "token-for-all", "token-for-work"

#: Makes a server of the place's agents, with these keys of `serve`, and opens a browser at it.
Opener = Callable[..., Browser]


def configure(place, **blocks):
    """Write a configuration of the agents `main` and `work`, with these blocks beside them."""
    agents = [{"id": name, "workspace": str(place.folder / name)} for name in ("main", "work")]
    place.config.write_text(json.dumps({"agents": {"list": agents}, **blocks}))
    return load(Options(config=place.config, home=place.home))


@pytest.fixture
def notes(place):
    """Two agents with a note each, both indexed."""
    from memline.producers.runs.index_run import bring_up_to_date

    place.write("../main/MEMORY.md", "# Facts\n\nInvoices are whole cents.\n")
    place.write("../work/MEMORY.md", "# Work\n\nThe vault code is 7341.\n")
    settings = configure(place)
    for agent in settings.agents.values():
        bring_up_to_date(settings, agent)
    return place


@pytest.fixture
def opened(notes):
    with ExitStack() as stack:

        def make(*, blocks=None, **serve):
            loaded = configure(notes, serve=serve, **(blocks or {}))
            return stack.enter_context(Browser(stack.enter_context(serving(loaded))))

        yield make


@pytest.fixture
def browser(opened):
    """A browser at a server without tokens."""
    return opened()


@pytest.fixture
def owner(opened):
    """A browser that is logged in with the token for all."""
    found = opened(token=ALL, tokens={"work": WORK})
    assert found.log_in(ALL).status_code == 200
    return found
