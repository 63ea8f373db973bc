"""A provider that stops under a fleet of real processes: its fallback, restarts, and the way back."""

import json

import pytest

from tests.acceptance.conftest import ROWS, write_notes
from tests.support.embedding_server import VoyageServer

NOTES = 20


@pytest.fixture
def second():
    with VoyageServer(dims=24) as running:
        yield running


@pytest.fixture
def notes(notes, second):
    """The same with a fallback that is configured."""
    notes.configure(fallback="voyage")
    content = json.loads(notes.config.read_text())
    content["models"] = {"providers": {"voyage": {"baseUrl": second.url, "apiKey": "pa-second-0123456789"}}}
    notes.config.write_text(json.dumps(content))
    return notes


def providers(fleet):
    """Provider -> state of its requests."""
    return {
        one["name"]: mode["state"]
        for one in fleet.run("queue", "--json").json["providers"]
        for mode in one["modes"]
        if mode["mode"] == "requests"
    }


def test_a_fleet_goes_on_with_the_fallback_over_restarts_and_back_when_an_operator_says_so(
    fleet, notes, provider, second
):
    provider.control({"fault": "401"})
    texts = write_notes(notes, 0, NOTES)
    fleet.up()
    fleet.until(lambda: fleet.vectors().get("ready") == texts, "the fallback's vectors")
    asked = len(provider.requests)
    for name in ("store", "embed"):
        fleet.restart(name)
    more = write_notes(notes, NOTES, 1)
    fleet.until(lambda: fleet.vectors().get("ready") == texts + more, "the new note's")
    stopped = providers(fleet)
    asked_since = len(provider.requests) - asked
    provider.control({"fault": "", "clear_log": True})

    fleet.run("queue", "resume", "--json")

    fleet.until(lambda: providers(fleet) == {"openai": "closed"}, "the first provider")
    fleet.until(lambda: notes.status()["vector"]["ready"] == texts + more, "its vectors")
    assert stopped == {"voyage": "closed", "openai": "open"}
    assert asked_since == 0, "no call while it is open"
    assert asked <= 8, "those that were out with the first no"
    assert not second.repeated()
    assert max(len(request.body["input"]) for request in provider.requests) <= ROWS
    assert notes.status()["fallback"] is None
