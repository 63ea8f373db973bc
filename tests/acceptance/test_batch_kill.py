"""kill -9 in the middle of batches: each has one job, every vector is stored, none is paid for twice."""

import random
import time

import pytest

from memline.shared.errors import IndexMissing
from tests.acceptance.conftest import write_notes
from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import Fleet
from tests.support.undisturbed import assert_as_undisturbed
from tests.support.workspace import until

#: Few: the message of a killed worker waits for dramatiq's heartbeat.
KILLS = 4

#: Notes that come together: enough for a batch here.
NOTES = 8

#: Milliseconds of a call of the Batch API, so that half of the kills hit one that is on its way.
LATENCY_MS = 80

#: Calls of the Batch API between two kills at most; the whole life of a batch has eight or more.
CALLS = 4

pytestmark = pytest.mark.place(
    folders=["memory"],
    server={"batch": {"enabled": True, "minTexts": 10, "pollIntervalMs": 50}},
    sync={"watchDebounceMs": 20},
)


@pytest.fixture
def server():
    with EmbeddingServer(dims=16) as running:
        running.control({"batch": {"looks": 2, "latency_ms": LATENCY_MS}})
        yield running


def test_a_batch_worker_that_is_killed_again_and_again_makes_each_job_once(
    place, server, redis_server, tmp_path
):
    dice = random.Random(22)
    texts = 0

    with Fleet(place, redis_server.url) as fleet:
        fleet.start("chunk", "embed", "batch", "store")
        for number in range(KILLS):
            if _open(place) == 0:
                texts += write_notes(place, NOTES * number, NOTES)
                assert fleet.run("reindex").status == 0
            # The reindex may end after the batch that it made.
            until(lambda: _open(place) > 0 or set(fleet.vectors()) == {"ready"}, "a batch, or its end")
            _let_live(server, dice, lambda: _open(place) == 0)
            # Now and then the one that hands the batches out, and stores what they bring.
            fleet.restart("store" if number % 2 else "batch")
        fleet.until(lambda: fleet.vectors() == {"ready": texts}, "every vector")
        fleet.until(lambda: _open(place) == 0, "the end of the last batch")

        assert fleet.dead() == []
    jobs = server.log()["batch"]["jobs"]
    assert len({job["tag"] for job in jobs}) == len(jobs), "one job for each batch"
    assert sum(job["rows"] for job in jobs) == texts == len(place.contents().vectors)
    assert server.repeated() == {}, "no text was paid twice"
    assert server.requests == [], "no text went out in a request as well"
    assert_as_undisturbed(place, tmp_path)


def _let_live(server, dice, is_over):
    """Wait for the moment of a kill: so many calls later, and then in the middle of one or between two."""
    goal = _calls(server) + dice.randint(1, CALLS)
    until(lambda: _calls(server) >= goal or is_over(), "a call")
    time.sleep(dice.uniform(0, 1.5 * LATENCY_MS / 1000))


def _calls(server):
    return sum(server.log()["batch"]["calls"].values())


def _open(place):
    try:
        (count,) = place.rows("SELECT count(*) FROM batches WHERE state <> 'closed'")[0]
    except IndexMissing:
        return 0
    return int(count)
