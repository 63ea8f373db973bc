import time
from collections.abc import Iterator

import pytest

from memline.producers.actions import provider_pauses
from memline.producers.reports import breakers
from memline.shared.clock import SystemClock
from memline.shared.embedders.choice import choose
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling.limits import FileLimits
from tests.support.index_rows import answer, file_row, lease_all
from tests.support.workspace import Place, remote

pytestmark = pytest.mark.place(**remote("http://127.0.0.1:9/v1", requestsPerMinute=60))


@pytest.fixture
def writer(place: Place) -> Iterator[IndexWriter]:
    opened = IndexWriter.of(place.agent)
    opened.retarget(choose(place.agent).identity)
    opened.store_file(file_row("a.md", "apples"))
    yield opened
    opened.close()


def test_an_account_is_reported_with_its_calls_minute_money_and_breakers(
    place: Place, writer: IndexWriter
) -> None:
    identity = choose(place.agent).identity
    assert identity is not None
    answer(writer, lease_all(writer))
    writer.record_calls(identity, "lease", [("ok", 40), ("timeout", 9_000)])
    account = writer.accounts.of("openai")
    FileLimits(writer.accounts.file, SystemClock()).take(account, tokens=7, max_requests=60)

    (report,) = breakers.of_agent(place.agent, place.settings)

    assert (report["name"], report["account"], report["model"]) == ("openai", account, identity.model)
    assert report["minute"] == {"requests": 1, "tokens": 7, "maxRequests": 60, "maxTokens": None}
    assert (report["lastDay"]["calls"], report["lastDay"]["errors"]) == (2, {"timeout": 1})
    assert [mode["state"] for mode in report["modes"]] == ["closed"]
    assert report["paused"] is False and report["fallback"] is None
    provider_pauses.pause(place.agent)
    assert breakers.of_agent(place.agent, place.settings)[0]["paused"] is True


def test_without_an_index_there_is_nothing_to_report(place: Place) -> None:
    assert breakers.of_agent(place.agent, place.settings) == []


def test_a_redis_that_is_away_hides_only_the_minute(
    place: Place, writer: IndexWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")

    (report,) = breakers.of_agent(place.agent, place.settings)

    assert report["minute"]["requests"] is None


def test_what_a_minute_holds_is_forgotten_after_it(place: Place, writer: IndexWriter) -> None:
    limits = FileLimits(writer.accounts.file, SystemClock())
    with writer.accounts.file.writing() as connection:
        connection.execute("INSERT INTO places VALUES ('a', ?, 3, 5)", (time.time() - 600,))
        connection.execute("INSERT INTO places VALUES ('a', ?, 2, 4)", (time.time() - 1,))

    used = limits.used("a")

    assert (used.requests, used.tokens) == (2, 4)
