import time

import pytest
from msgspec.structs import replace

from memline.producers.actions import verbs
from memline.shared.clock import SystemClock
from memline.shared.config.schema import Batch
from memline.shared.embedders.choice import choose
from memline.shared.index import batches, meta
from memline.shared.index.driver import transaction
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health
from memline.shared.scheduling.health import Health
from memline.shared.scheduling.limits import Limits, limit_key
from tests.support.index_rows import CAPS, MODEL_A, batch_failed, file_row, lease_all, retarget, use
from tests.support.workspace import remote

NOW = 1_750_000_000.0

pytestmark = pytest.mark.place(**remote("http://127.0.0.1:9/v1", batch={"enabled": True}))


@pytest.fixture
def writer(place):
    opened = IndexWriter.of(place.agent)
    retarget(opened, MODEL_A)
    opened.store_file(file_row("a.md", "apples"))
    yield opened
    opened.close()


def hold(writer, seconds):
    """The provider named a time."""
    asked = Health(reason="429: buy more", retry_at=time.time() + seconds)
    with transaction(writer.connection):
        health.update(writer.accounts, "openai", health.REQUESTS, lambda _: asked)


def stop_batches(writer):
    with transaction(writer.connection):
        for _ in range(2):
            batch_failed(writer.accounts, "it expired", NOW)


def test_a_pause_of_all_is_one_of_batches_as_well(place, writer):
    verbs.pause(place.agent)
    paused = writer.lease(CAPS, credits=8, only_full=False, batch=Batch(enabled=True, min_texts=1))
    verbs.resume(place.agent)

    assert paused == batches.listed(writer.connection) == []
    assert meta.get(writer.connection, meta.PAUSED) is None


def test_another_provider_is_meant_only_by_its_name(place, writer):
    stop_batches(writer)

    verbs.resume(place.agent, provider="gemini")
    still = place.status()["breakers"][1]["state"]
    verbs.pause(place.agent, provider="gemini")

    assert still == "open"
    assert {one["provider"] for one in place.status()["breakers"] if one["pausedByHand"]} == {"gemini"}
    assert len(lease_all(writer)) == 1


def test_a_time_that_the_provider_named_is_ended_and_one_request_tries(place, writer):
    # A change of the model would begin anew.
    use(writer, choose(place.agent))
    writer.store_file(file_row("b.md", *(f"pears {n}" for n in range(20))))
    hold(writer, 50_000)
    limits = Limits(writer.accounts.file, SystemClock())
    name = limit_key(writer.accounts.of("openai"), writer.accounts.owner("openai")[0])
    limits.cool_down(name, 50_000)
    caps = replace(CAPS, max_rows=7)
    before = writer.lease(caps, credits=8, only_full=False)

    verbs.resume(place.agent)

    assert before == []
    # The words of the provider stay until it has answered.
    assert health.read(writer.accounts, "openai").reason == "429: buy more"
    assert limits.take(name, {}) == 0
    assert len(writer.lease(caps, credits=8, only_full=False)) == 1
    with transaction(writer.connection):
        health.update(writer.accounts, "openai", health.REQUESTS, health.worked)
    assert len(writer.lease(caps, credits=8, only_full=False)) == 2
