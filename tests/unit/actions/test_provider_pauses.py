from collections.abc import Iterator

import pytest

from memline.producers.actions import provider_pauses
from memline.producers.reports import breakers
from memline.shared.index import meta
from memline.shared.index.driver import transaction
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health, leases
from memline.shared.values import replace
from tests.support.index_rows import CAPS, MODEL_A, answer, batch_failed, fail, file_row, lease_all
from tests.support.workspace import Place, remote

NOW = 1_750_000_000.0

pytestmark = pytest.mark.place(**remote("http://127.0.0.1:9/v1", batch={"enabled": True}))


@pytest.fixture
def writer(place: Place) -> Iterator[IndexWriter]:
    opened = IndexWriter.of(place.agent)
    opened.retarget(MODEL_A)
    opened.store_file(file_row("a.md", "apples"))
    yield opened
    opened.close()


def may_batch(writer: IndexWriter) -> bool:
    with transaction(writer.connection):
        return health.may_batch(writer.accounts, "openai", NOW)


def stop_batches(writer: IndexWriter) -> None:
    with transaction(writer.connection):
        for _ in range(2):
            batch_failed(writer.accounts, "it expired", NOW)


def test_one_mode_is_paused_and_resumed_without_the_other(place: Place, writer: IndexWriter) -> None:
    provider_pauses.pause(place.agent, mode="batch")
    paused = may_batch(writer), len(lease_all(writer))
    provider_pauses.resume(place.agent, mode="batch")

    assert paused == (False, 1)
    assert may_batch(writer)


def test_a_pause_of_all_is_one_of_batches_as_well(place: Place, writer: IndexWriter) -> None:
    provider_pauses.pause(place.agent)
    paused = may_batch(writer), lease_all(writer)
    provider_pauses.resume(place.agent)

    assert paused == (False, [])
    assert may_batch(writer)
    assert meta.get(writer.connection, meta.PAUSED) is None


@pytest.mark.parametrize("where", [{}, {"mode": "requests"}, {"provider": "openai"}])
def test_a_pause_ends_requests_that_no_worker_has_begun_to_send(
    place: Place, writer: IndexWriter, where: dict[str, str]
) -> None:
    writer.store_file(file_row("b.md", *(f"pears {n}" for n in range(20))))
    caps = replace(CAPS, max_rows=7)
    sent, waiting, *_ = writer.lease(caps, credits=8, only_full=False)
    assert writer.budget.may_send(sent.lease)

    provider_pauses.pause(place.agent, **where)

    assert not writer.budget.may_send(waiting.lease)
    assert leases.tokens(writer.connection) == [sent.lease]
    # What was sent comes back as ever, the rest waits.
    answer(writer, [sent])
    states = dict(place.rows("SELECT state, count(*) FROM vectors GROUP BY state"))
    assert states == {"ready": len(sent.texts), "wanted": 21 - len(sent.texts)}


def test_a_pause_of_batches_ends_no_request(place: Place, writer: IndexWriter) -> None:
    (request,) = lease_all(writer)

    provider_pauses.pause(place.agent, mode="batch")

    assert writer.budget.may_send(request.lease)


def test_resuming_one_mode_leaves_the_others_breaker_open(place: Place, writer: IndexWriter) -> None:
    stop_batches(writer)
    fail(writer, lease_all(writer)[0], "stop")

    requests, batch = provider_pauses.resume(place.agent, mode="batch")

    assert (requests["state"], batch["state"]) == ("open", "closed")
    assert may_batch(writer)


def test_another_provider_is_meant_only_by_its_name(place: Place, writer: IndexWriter) -> None:
    stop_batches(writer)

    provider_pauses.resume(place.agent, provider="gemini")
    still = breakers.of_index(writer.accounts, place.agent)[1]["state"]
    found = provider_pauses.pause(place.agent, provider="gemini", mode="requests")

    assert still == "open"
    assert [one["provider"] for one in found if one["pausedByHand"]] == ["gemini"]
    assert len(lease_all(writer)) == 1


def test_the_probe_of_an_open_breaker_may_be_sent_before_its_time(place: Place, writer: IndexWriter) -> None:
    stop_batches(writer)
    fail(writer, lease_all(writer)[0], "stop")
    assert lease_all(writer) == []

    probed = provider_pauses.probe(place.agent, mode="requests")

    assert probed == ["openai requests"]
    assert [request.is_probe for request in lease_all(writer)] == [True]
    assert breakers.of_index(writer.accounts, place.agent)[1]["nextProbe"] == NOW + 1800
    assert provider_pauses.probe(place.agent, mode="requests") == []


def test_no_probe_is_sent_while_an_operator_pauses(place: Place, writer: IndexWriter) -> None:
    fail(writer, lease_all(writer)[0], "stop")
    provider_pauses.pause(place.agent, mode="requests")

    provider_pauses.probe(place.agent)

    assert lease_all(writer) == []


def test_both_modes_of_the_provider_in_use_are_reported(place: Place, writer: IndexWriter) -> None:
    stop_batches(writer)

    requests, batch = breakers.of_index(writer.accounts, place.agent)

    assert (requests["mode"], requests["state"], requests["nextProbe"]) == ("requests", "closed", None)
    assert batch == {
        "provider": "openai",
        "mode": "batch",
        "state": "open",
        "failures": 2,
        "limit": 2,
        "since": NOW,
        "nextProbe": NOW + 1800,
        "holdUntil": None,
        "pausedByHand": False,
        "maxRows": None,
        "reason": "it expired",
        "action": "memline queue resume --provider openai --mode batch",
    }
