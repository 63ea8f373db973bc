"""Runs against providers for which a full request is too much: each gets its texts in the end."""

import pytest

from tests.integration.provider.conftest import NOTES, TEXTS, with_notes
from tests.support.embedding_server import GeminiServer
from tests.support.workspace import remote


@pytest.fixture
def gemini(place, monkeypatch):
    """A Gemini that embeds the notes of this place."""
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-test")
    with GeminiServer(dims=16) as running:
        place.configure(provider="gemini", remote={"baseUrl": running.url})
        yield running


def test_a_server_too_slow_for_a_full_request_is_indexed_and_the_size_is_remembered(place, server, right):
    place.configure(**remote(server.url, maxRows=TEXTS, timeoutSeconds=1))
    server.control({"fault": "slow-text:90"})

    report = place.index()
    sizes = [request.rows for request in server.requests]
    (breaker, *_) = place.status()["breakers"]
    shown = place.call("status")
    server.control({"fault": "", "clear_log": True})
    with_notes(place, 2 * NOTES)
    again = place.index()

    assert not report.failed, (report.failures, report.warning)
    assert sizes[0] == TEXTS and max(sizes[1:]) < TEXTS
    assert right.items() <= place.contents().vectors.items()
    assert breaker["maxRows"] < TEXTS
    assert f"at most {breaker['maxRows']} texts in one" in shown.stdout
    assert not again.failed
    # The first request of another run is no larger than what came in time.
    assert server.requests[0].rows <= breaker["maxRows"]


@pytest.mark.parametrize("fault", ["500-rows:8", "close-rows:8"])
def test_a_server_that_fails_at_large_requests_and_does_not_say_so_gets_smaller_ones(
    place, server, right, fault
):
    place.configure(**remote(server.url, maxRows=TEXTS))
    server.control({"fault": fault})

    report = place.index()
    sizes = [request.rows for request in server.requests]

    assert not report.failed, report.warning
    assert right.items() <= place.contents().vectors.items()
    # A size is tried three times at once, and one text tells that the server is there.
    assert sizes == [30, 30, 30, 1, 15, 15, 15, 8, 7, 8, 7]
    assert place.status()["breakers"][0]["maxRows"] == 8


def test_a_text_that_never_comes_in_time_fails_alone_and_status_says_why(place, server):
    with_notes(place, 2)
    place.configure(**remote(server.url, maxRows=1, timeoutSeconds=1))
    server.control({"fault": "hang:word1x1x"})

    report = place.index()
    failures = place.status()["vector"]["failures"]
    shown = place.call("status")

    assert report.failed
    assert (report.vectors["failed"], report.vectors["pending"]) == (1, 0)
    assert failures == [{"path": "memory/note-1.md", "reason": report.failures[0]["reason"]}]
    assert "no answer within 1 s; raise memorySearch.remote.timeoutSeconds" in failures[0]["reason"]
    assert failures[0]["reason"] in shown.stdout
    assert len([request for request in server.requests if "word1x1x" in str(request.body)]) == 3


@pytest.mark.parametrize("fault", ["nan", "html", "zero"])
def test_a_provider_that_answers_nonsense_is_paid_once_for_what_is_in_flight(place, server, fault):
    server.control({"fault": fault})

    report = place.index()
    paid = sum(request.rows for request in server.requests)
    (breaker, *_) = place.status()["breakers"]

    # No text is blamed, and none is sent a second time.
    assert (report.vectors["failed"], report.vectors["pending"]) == (0, TEXTS)
    assert paid <= TEXTS + 2 * 4, "and twice one text for each thread"
    assert (breaker["state"], breaker["failures"]) == ("open", 1)
    assert "(so for any text)" in report.warning and report.action


def test_a_quota_of_gemini_that_is_less_than_a_request_gets_through(place, gemini):
    gemini.control({"fault": "text-quota:8"})

    report = place.index()

    assert not report.failed, (report.failures, report.warning)
    assert report.vectors["embedded"] == TEXTS
    assert [request.rows for request in gemini.requests][:2] == [TEXTS, 4]
    assert place.status()["breakers"][0]["maxRows"] == 4
