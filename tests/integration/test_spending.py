"""Ceilings for what embedding costs, in whole runs against a stub of a provider."""

import json
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from memline.producers.reports.metrics import page
from memline.producers.reports.state import StateReader
from tests.support.process import end, memline, running_memline
from tests.support.workspace import note, until

NOTES = 6
TEXTS = 3 * NOTES

pytestmark = pytest.mark.place(server={"maxRows": 2}, notes=NOTES)


def limit(place, *, prices=None, **limits):
    content = json.loads(place.config.read_text())
    place.config.write_text(json.dumps({**content, "limits": limits, "prices": prices or {}}))


def tokens_of_a_text(place):
    """The tokens of the largest text, once it is indexed."""
    (tokens,) = place.rows("SELECT max(tokens) FROM vectors")[0]
    return int(tokens)


def test_at_the_ceiling_embedding_pauses_with_a_word_and_search_goes_on(place, server):
    limit(place, maxTokensPerDay=2500)

    report = place.index()
    sent = sum(request.rows for request in server.requests)
    again = place.index()
    answer = place.search("word3x1x7")
    status = place.call("status")
    limit(place, maxTokensPerDay=10**6)
    raised = place.index()

    assert 0 < sent < TEXTS
    assert report.failed and report.vectors["pending"] == TEXTS - sent
    assert "the ceiling limits.maxTokensPerDay is reached" in report.warning
    assert f"{TEXTS - sent} vectors are pending" in report.warning
    assert "00:00 UTC; or raise limits.maxTokensPerDay, then run: memline index" in report.action
    assert again.vectors["pending"] == TEXTS - sent
    assert [hit.path for hit in answer.hits][:1] == ["memory/note-3.md"]
    assert "limits.maxTokensPerDay is reached" in answer.warning
    assert "limits.maxTokensPerDay is reached" in status.stdout.splitlines()[1]
    assert "tokens without a price today (UTC)" in status.stdout
    assert (raised.vectors["pending"], raised.failed) == (0, False)
    assert server.repeated() == {}


def test_two_agents_that_index_at_the_same_time_stay_below_one_ceiling(place, server, tmp_path):
    second = tmp_path / "second"
    (second / "memory").mkdir(parents=True)
    for number in range(NOTES):
        (second / "memory" / f"note-{number}.md").write_text(note(100 + number))
    limit(place, prices={"stub": {"perMillion": 1000.0}}, maxCostPerDay=4.0)

    def index(agent, workspace):
        options = ["--workspace", str(workspace), "--agent", agent]
        return memline(*place.arguments(*options, "index"))

    with ThreadPoolExecutor() as pool:
        ran = list(pool.map(index, ("main", "work"), (place.workspace, second)))
    spending = place.status()["spending"]

    # 95 hundredths of the ceiling are for texts, and no text more fits.
    assert [each.status for each in ran] == [1, 1]
    assert spending["today"]["cost"] <= 3.8
    assert 3.8 - spending["today"]["cost"] < tokens_of_a_text(place) / 1000
    assert spending["today"]["tokens"] == round(spending["today"]["cost"] * 1000)
    assert [(each["provider"], each["model"]) for each in spending["models"]] == [("openai", "stub")]
    assert spending["limits"]["maxCostPerDay"] == 4.0


def test_what_a_provider_refused_is_not_counted(place, server):
    limit(place, maxTokensPerDay=10**6)
    server.control({"fault": "401"})
    place.index()
    refused = place.status()["spending"]["today"]
    server.control({"fault": ""})
    place.end_cooldowns()
    place.index()
    indexed = place.status()["spending"]["today"]

    assert (refused["tokens"], refused["requests"]) == (0, 0)
    assert indexed["tokens"] == sum(tokens for (tokens,) in place.rows("SELECT tokens FROM vectors"))


def test_the_counts_are_those_of_the_provider(place, server):
    server.control({"script": ["500", "ok", "close", "ok", "504", "429:0.1"]})
    place.index()
    server.control({"script": ["503"]})
    place.search("word3x1x7")

    today = place.status()["spending"]["today"]

    received = Counter(request.fault for request in server.requests)
    # Of an answer that was cut off, and of a gateway that gave up, it is not known.
    assert today["requests"] == received[""] + received["ok"] + received["close"] + received["504"]


def test_a_run_that_is_interrupted_counts_what_it_sent(place, server):
    server.control({"latency_ms": 500})
    with running_memline(*place.arguments("index")) as running:
        until(lambda: server.requests, "the first request")
        end(running, signal.SIGINT)

    today = place.status()["spending"]["today"]

    assert today["requests"] == len(server.requests) < NOTES


def test_metrics_show_what_was_spent_and_who_waits(place):
    limit(place, prices={"stub": {"perMillion": 1000.0}}, maxCostPerDay=0.6)
    report = place.index()

    text = page(StateReader(place.settings, [place.agent]))

    assert "limits.maxCostPerDay is reached" in report.warning
    assert 'memline_spending_limit{key="maxCostPerDay"} 0.6' in text
    spent = place.status()["spending"]["today"]
    labels = 'model="stub",period="today",provider="openai"'
    assert any(
        f'memline_spent_dollars{{provider="openai",model="stub",period="today"}} {spent["cost"]}' in line
        or f"memline_spent_dollars{{{labels}}} {spent['cost']}" in line
        for line in text.splitlines()
    )
