import time
from contextlib import closing

import pytest

from memline.producers.reports.state import fleet_state, state, to_json
from memline.shared.errors import QueueError
from memline.shared.index import meta
from memline.shared.index.driver import transaction
from memline.shared.index.hold import hold
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health
from memline.shared.scheduling.health import Health
from tests.support.index_rows import MODEL_A, answer, file_row, lease_all, retarget
from tests.support.workspace import remote

pytestmark = pytest.mark.place(**remote("http://127.0.0.1:9/v1"))


@pytest.fixture
def writer(place):
    """One vector is ready, and one is leased by this process."""
    writer = IndexWriter.of(place.agent)
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    answer(writer, lease_all(writer))
    writer.store_file(file_row("b.md", "pears"))
    lease_all(writer)
    yield writer
    writer.close()


def test_without_a_queue_there_is_no_fleet(place):
    with pytest.raises(QueueError, match="there is no queue") as raised:
        fleet_state(place.settings, [place.agent])

    assert "memline status" in raised.value.hint


def test_the_state_counts_vectors_and_names_the_provider_in_use_first(place, writer):
    with transaction(writer.connection):
        health.set_paused(writer.accounts, "voyage", True)

    report = to_json(state(place.settings, [place.agent]))

    (agent,) = report["agents"]
    assert (agent["vectors"]["ready"], agent["vectors"]["leased"]) == (1, 1)
    assert [(each["name"], each["state"]) for each in report["providers"]] == [
        ("openai", "ok"),
        ("voyage", "paused"),
    ]
    assert report["providers"][1]["action"] == "memline queue resume --provider voyage"


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (Health(), "ok"),
        (Health(failures=1, retry_at=time.time() + 3600, reason="503"), "rate limited"),
        (Health(failures=1), "retrying"),
        (Health(retry_at=time.time() + 3600), "rate limited"),
        (Health(opens=1, retry_at=time.time() + 3600), "open"),
    ],
)
def test_an_account_has_one_word_for_its_state(place, writer, seen, word):
    health.update(writer.accounts, "openai", health.REQUESTS, lambda _: seen)

    (account,) = to_json(state(place.settings, [place.agent]))["providers"]

    assert account["state"] == word


def test_the_time_left_is_known_while_texts_are_sent_at_a_known_rate(place, writer):
    def eta_s():
        return to_json(state(place.settings, [place.agent]))["backlog"]["etaSeconds"]

    with writer.transaction() as (connection, now):
        meta.count_embedded(connection, 100, now)
    with closing(hold(place.index_path, "index", 1.0)):
        moving = eta_s()
    with writer.transaction() as (connection, now):
        meta.put(connection, meta.PAUSED, now)

    assert moving is not None and moving < 5
    assert eta_s() is None
