from collections.abc import Iterator

import pytest

from memline.producers.reports import breakers
from memline.shared.index.driver import transaction
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health
from tests.support.index_rows import MODEL_A, batch_failed, file_row
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
