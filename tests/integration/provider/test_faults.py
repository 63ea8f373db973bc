"""Whole runs against a provider that misbehaves in every way it can: nothing wrong is ever stored."""

import pytest

from memline.shared.clock import SystemClock
from memline.shared.scheduling import health
from tests.integration.provider.conftest import NOTES, ROWS, TEXTS, with_notes
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
