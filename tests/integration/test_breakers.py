"""A provider that stops, in whole runs: which provider embeds meanwhile, and how the first one resumes."""

import json
import time
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from memline.producers.runs.in_process import local_workers
from memline.producers.runs.index_run import TAKE_OVER_S
from memline.shared.finding import PROBLEM
from memline.shared.queue.broker import send
from memline.shared.queue.messages import Sweep
from memline.shared.scheduling import health, limits
from tests.support.embedding_server import VoyageServer
from tests.support.process import end, running_memline
from tests.support.workspace import until

NOTES = 3
TEXTS = 3 * NOTES


@pytest.fixture
def second():
    """The fallback."""
    with VoyageServer(dims=24) as running:
        yield running


@pytest.fixture
def place(place, server, second):
    place.furnish(notes=NOTES)
    configure(place, server, second)
    return place


def configure(place, first, second, **memory):
    defaults = {
        "workspace": str(place.workspace),
        "memorySearch": {"provider": "openai", "model": "stub", **memory},
    }
    providers = {
        "openai": {"baseUrl": first.url, "apiKey": "sk-first-0123456789"},
        "voyage": {"baseUrl": second.url, "apiKey": "pa-second-0123456789"},
    }
    place.config.write_text(
        json.dumps({"agents": {"defaults": defaults}, "models": {"providers": providers}})
    )


@contextmanager
def working(place):
    """The workers of `memline up`, without its watcher."""
    with local_workers(place.settings, kind="up") as process:
        send(Sweep(agent="main"))
        yield process


def breaker_of(place, provider="openai"):
    return next(one for one in place.status()["breakers"] if one["provider"] == provider)


def target(place):
    found = place.status()["identity"]["target"]["provider"]
    return found


def ready(place):
    return int(place.status()["vector"]["ready"])


def impatient(monkeypatch, cool_down_s):
    rules = replace(health.REQUEST_RULES, open_s=cool_down_s)
    monkeypatch.setattr(health, "REQUEST_RULES", rules)
    # What keeps requests back that are in flight when the provider refuses.
    monkeypatch.setattr(limits, "STOP_COOLDOWN_S", cool_down_s / 2)


def test_while_it_is_open_no_process_calls_and_a_restart_changes_nothing(place, server):
    server.control({"fault": "401"})
    place.index()
    asked, next_probe = len(server.requests), breaker_of(place)["nextProbe"]
    server.control({"fault": ""})

    for _ in range(2):
        with running_memline(*place.arguments("up")) as up:
            place.write("memory/new.md", f"# New\n\nfigs {asked}\n")
            until(lambda: ready(place) == 0 and place.status()["vector"]["wanted"] > TEXTS, "the new text")
            end(up)

    state = breaker_of(place)
    assert len(server.requests) == asked
    assert (state["state"], state["mode"]) == ("open", "requests")
    assert state["nextProbe"] == next_probe > time.time()
    assert state["reason"]


def test_a_new_key_is_tried_at_once(place, server, second):
    server.control({"fault": "401"})
    place.index()
    server.control({"fault": ""})
    content = place.config.read_text()
    place.config.write_text(content.replace("sk-first", "sk-other"))

    with working(place):
        until(lambda: ready(place) == TEXTS, "all vectors")

    assert breaker_of(place)["state"] == "closed"


def test_a_probe_closes_it_and_only_then_the_others_go(place, server, monkeypatch):
    impatient(monkeypatch, 0.3)
    server.control({"fault": "401"})
    place.index()
    # Two more that fail: each a single request of a single text.
    server.control({"clear_log": True, "script": ["401", "401"], "fault": ""})

    with working(place):
        until(lambda: ready(place) == TEXTS, "all vectors")

    sizes = [len(request.body["input"]) for request in server.requests]
    assert sizes[:3] == [1, 1, 1]
    assert sum(sizes[2:]) == TEXTS
    assert breaker_of(place)["state"] == "closed"
    times = [request.at for request in server.requests]
    assert times[1] - times[0] >= 0.3
    assert times[2] - times[1] >= 0.3


def test_resume_by_hand_does_not_wait_for_the_cool_down(place, server):
    server.control({"fault": "429-quota"})
    place.index()
    server.control({"fault": ""})
    place.end_cooldowns()

    with working(place):
        place.run("queue", "resume")
        send(Sweep(agent="main"))
        until(lambda: ready(place) == TEXTS, "all vectors")

    assert (breaker_of(place)["state"], breaker_of(place)["failures"]) == ("closed", 0)


def test_a_manual_pause_is_shown_and_ended_with_resume(place, server, second):
    # A fallback takes over from no pause, so no run waits for that.
    configure(place, server, second, fallback="voyage")
    place.call("queue", "pause", "--provider", "openai")
    status = place.call("status")
    paused = place.index()
    asked = len(server.requests)
    place.call("queue", "resume", "--provider", "openai")

    assert paused.warning.startswith("embedding is paused for openai; ")
    assert paused.action == "memline queue resume --provider openai"
    assert "note embedding is paused for openai\n" in status.stdout
    assert f"try: {place.typed('queue resume --provider openai')}\n" in status.stdout
    assert asked == 0
    assert paused.seconds < TAKE_OVER_S
    assert not place.index().failed


def test_the_fallback_embeds_until_a_start_after_the_cooldown_gives_the_primary_its_place_back(
    place, server, second
):
    configure(place, server, second, fallback="voyage")
    server.control({"fault": "429-quota"})
    by_fallback = place.index()
    server.control({"fault": "", "clear_log": True})
    with working(place):
        after_restart = target(place)
        assert len(server.requests) == 0
    place.execute_accounts("UPDATE health SET retry_at = 1")
    place.end_cooldowns()
    with working(place):
        until(lambda: target(place) == "openai" and ready(place) == TEXTS, "the primary's vectors")

    assert (by_fallback.provider, after_restart) == ("voyage", "voyage")
    assert sum(len(request.body["input"]) for request in server.requests) == TEXTS
    assert place.status()["fallback"] is None


def test_a_run_ends_when_the_fallback_stops_as_well(place, server, second):
    configure(place, server, second, fallback="voyage")
    for each in (server, second):
        each.control({"fault": "401"})

    report = place.index()

    (stopped,) = (each for each in report.findings if each.code == "breaker_open")
    assert (report.provider, report.failed, stopped.level) == ("voyage", True, PROBLEM)
    assert stopped.what.endswith(f"{TEXTS} vectors are pending")


def test_the_fallback_stays_until_an_operator_asks(place, server, second):
    configure(place, server, second, fallback="voyage")
    server.control({"fault": "401"})
    place.index()
    server.control({"fault": "", "clear_log": True})
    doctor = place.call("doctor").stdout
    status = place.call("status").stdout
    resumed = place.call("queue", "resume", "--provider", "openai")

    assert target(place) == "openai"
    assert "the fallback voyage embeds instead of openai: " in status
    assert f"try: {place.typed('queue resume')}\n" in status
    assert "the fallback voyage embeds instead of openai" in doctor
    assert "embeds with openai" not in doctor
    assert resumed.stdout.endswith(f"goes on with: {place.typed('index')}.\n")
    place.end_cooldowns()
    assert not place.index().failed


def test_a_refused_key_is_said_once_and_in_words(place, server):
    server.control({"fault": "401"})
    configure(place, server, server)

    ran = place.run("index")

    assert ran.status == 1
    assert ran.stderr.count("401") == 1, ran.stderr
    # The provider's own words without the JSON that they came in.
    assert "Incorrect API key provided" in ran.stderr
    assert not set('{}"') & set(ran.stderr) and "sk-first" not in ran.stderr + ran.stdout
