"""Whole runs against a provider that misbehaves in every way it can: nothing wrong is ever stored."""

import pytest
from msgspec.structs import replace

from memline.shared.clock import SystemClock
from memline.shared.scheduling import health
from tests.integration.provider.conftest import NOTES, ROWS, TEXTS, with_notes
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import end, running_memline
from tests.support.workspace import paths, remote, until

#: A definite no, and a word of the way out of it that a user must be told.
STOPS = {
    "401": "key",
    "403-quota": "top up",
    "429-quota": "top up",
    "404-model": "memorySearch.model",
    "redirect:http://127.0.0.1:9/v1": "memorySearch.remote.baseUrl",
}

#: Answers that do not fit the request.
BROKEN = ("html", "truncated", "bad-gzip", "error-in-200", "short", "long", "duplicate-index", "nan", "zero")

#: No answer at all, or one that says to come back.
LATER = ("429", "500", "503", "close", "error-in-200:429")


@pytest.mark.parametrize("fault", STOPS)
def test_a_definite_no_pauses_the_provider_and_the_next_run_after_the_mending_finishes(
    place, server, right, fault
):
    server.control({"fault": fault})

    report = place.index()
    asked = len(server.requests)
    answer = place.search("word3x1x7")

    assert report.failed
    assert report.vectors == {"embedded": 0, "cached": 0, "pending": TEXTS, "failed": 0}
    assert f"{TEXTS} vectors are pending" in report.warning
    assert STOPS[fault] in report.action
    assert "sk-test" not in str(report.to_json())
    assert asked <= 4, "one no a thread at most"
    assert paths(answer) == ["memory/note-3.md"]
    assert (answer.mode, answer.stale) == ("keyword", True)
    assert answer.warning
    assert answer.action
    assert place.status()["providerHealth"]["state"] == "open"

    server.control({"fault": ""})
    place.end_cooldowns()
    report = place.index()

    assert not report.failed
    assert report.vectors["embedded"] == TEXTS
    assert place.contents().vectors == right
    assert place.status()["providerHealth"]["state"] == "ok"


def test_a_bad_key_ends_the_command_with_1_and_the_mended_one_with_0(place, server):
    server.key = "sk-right"

    refused = place.call("index")
    status = place.call("status", "--deep", "--json")
    place.configure(**remote(server.url, apiKey="sk-right"))
    mended = place.call("index", "--json")

    assert refused.status == 1
    assert "401" in refused.stderr
    assert "Try: " in refused.stderr
    assert "sk-test" not in refused.stdout + refused.stderr
    assert status.json[0]["embeddingProbe"]["ok"] is False
    assert mended.status == 0
    assert mended.json[0]["vectors"] == {"embedded": TEXTS, "cached": 0, "pending": 0, "failed": 0}


@pytest.mark.parametrize("fault", [*BROKEN, *LATER, "wrong-dims", "hang"])
def test_a_passing_fault_costs_nothing_but_time(place, server, right, fault):
    # Until two answers agree nobody knows the dimensions.
    for notes in (1, 2):
        with_notes(place, notes)
        place.index()
    with_notes(place, NOTES)
    if fault == "hang":
        place.configure(**remote(server.url, maxRows=ROWS, timeoutSeconds=1))
    server.control({"script": ["ok", fault]})

    report = place.index()

    assert not report.failed, (report.failures, report.warning)
    assert report.vectors["embedded"] == TEXTS - 6
    assert place.contents().vectors == right


@pytest.mark.parametrize("fault", [fault for fault in BROKEN if fault != "duplicate-index"])
def test_answers_that_are_always_broken_are_never_stored_and_not_paid_for_without_end(
    place, server, right, fault
):
    server.control({"fault": fault})

    report = place.index()
    asked = len(server.requests)
    answer = place.search("word3x1x7")
    server.control({"fault": ""})
    place.end_cooldowns()
    again = place.index()

    assert report.failed
    assert report.vectors["embedded"] == 0
    assert report.vectors["pending"] + report.vectors["failed"] == TEXTS
    assert report.warning or report.failures
    assert asked <= 8 * (health.REQUEST_RULES.max_failures + 4)
    assert paths(answer) == ["memory/note-3.md"]
    assert answer.mode == "keyword"
    assert not again.failed
    assert place.contents().vectors == right


@pytest.mark.parametrize("fault", LATER)
def test_a_provider_that_stays_away_is_paused_and_found_again_by_the_next_run(place, server, right, fault):
    server.control({"fault": fault})

    report = place.index()
    asked = len(server.requests)
    server.control({"fault": ""})
    again = place.index()

    assert report.failed
    assert report.vectors == {"embedded": 0, "cached": 0, "pending": TEXTS, "failed": 0}
    assert report.warning
    assert report.action
    assert asked <= 4 * (health.REQUEST_RULES.max_failures + 5), (
        "tries of a call: failures in a row, those in flight, the text that tells whose fault it is, probes"
    )
    assert not again.failed
    assert place.contents().vectors == right


def test_a_provider_that_hangs_for_ever_ends_the_run_by_the_time_limit(place, server, monkeypatch):
    monkeypatch.setattr(health, "REQUEST_RULES", replace(health.REQUEST_RULES, max_failures=2))
    place.configure(**remote(server.url, maxRows=ROWS, timeoutSeconds=1))
    server.control({"fault": "hang"})

    report = place.index()

    assert report.failed
    assert report.vectors["pending"] == TEXTS
    assert "no answer within 1 s" in report.warning


def test_an_address_where_nobody_listens_is_told_with_what_to_do(place):
    with EmbeddingServer() as gone:
        url = gone.url
    place.configure(**remote(url))

    report = place.index()

    assert report.failed
    assert report.vectors["pending"] == TEXTS
    assert "a server is running" in report.action
    assert paths(place.search("word3x1x7")) == ["memory/note-3.md"]


def test_nobody_calls_before_the_time_that_retry_after_names(place, server, right):
    # The calls that are out are answered long after the no: no thread is free for another before it is known.
    server.control({"script": ["429:3", *["slow:1500"] * 3]})

    report = place.index()
    refused = next(request for request in server.requests if request.fault == "429:3")
    later = [request.at - refused.at for request in server.requests if request.at > refused.at]

    # Those that were out already when the answer came, one a thread, are no calls before the time.
    assert len([wait for wait in later if wait < 3.0]) <= 3
    assert max(later) >= 3.0
    assert not report.failed
    assert place.contents().vectors == right


def test_a_rate_limit_holds_for_every_process_and_the_rest_goes_on(place, server, right):
    server.control({"fault": "429:60"})

    with running_memline(*place.arguments("index")) as waiting:
        until(lambda: bool(place.status().get("providerHealth", {}).get("holdUntil")), "the hold")
        answer = place.search("word3x1x7")
        # A second process sees the limit of the first, and finds the file that is new.
        place.write("memory/new.md", "# New\n\nzanzibar\n")
        found = place.run("search", "zanzibar", "--json")
        assert waiting.poll() is None
        end(waiting)
    server.control({"fault": ""})
    report = place.index(clock=_Later(61))

    asked = [request for request in server.requests if request.fault]
    assert len(asked) <= 4, "one call a thread, all out before the first answer"
    assert paths(answer) == ["memory/note-3.md"]
    assert answer.mode == "keyword"
    assert [hit["path"] for hit in found.json["results"]] == ["memory/new.md"]
    assert not report.failed
    assert right.items() <= place.contents().vectors.items()


def test_a_run_that_meets_everything_at_once_still_ends_with_the_right_vectors(place, server, right):
    server.control({"script": ["slow:1", "500", "html", "429", "short", "close", "nan", "max-rows:2"] * 2})

    report = place.index()
    # Bad answers in a row stop the provider, and a run is a reason to try it again.
    for _ in range(4):
        report = place.index() if report.failed else report

    assert not report.failed, (report.failures, report.warning)
    assert place.contents().vectors == right


class _Later(SystemClock):
    """A clock that is ahead, as after a wait."""

    def __init__(self, seconds):
        self._seconds = seconds

    def now(self):
        return super().now() + self._seconds

    def now_ns(self):
        return super().now_ns() + int(self._seconds * 1e9)
