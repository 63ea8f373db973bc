"""A command that waits for a fleet says what is missing, and ends, by a clock of the test."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from memline.shared.errors import QueueError
from memline.shared.index.hold import hold
from memline.shared.queue import dead_letters, redis_broker
from memline.shared.queue.fleet import TTL_S, Fleet
from memline.shared.queue.fleet_workers import MISSING_S, fleet_workers
from memline.shared.queue.heartbeat import HEARTBEAT_S
from tests.support.workspace import remote
from tests.unit.findings.conftest import fleet
from tests.unit.queue.conftest import URL

#: Seconds after a loss within which it is named.
NAMED_S = 15.0

#: Seconds between two rounds of the loop of `index`, which asks at each.
ROUND_S = 0.05


@pytest.fixture
def loop(place, monkeypatch):
    """Run the loop of a command that waits for vectors, in a fleet of these roles at a moment.

    Returns the seconds after which a missing worker was named and the loop ended, and the error.
    """
    place.configure(**remote("http://127.0.0.1:9/v1", batch={"enabled": True}))
    at = SimpleNamespace(now=1_000.0)
    clock = SimpleNamespace(monotonic=lambda: at.now, time=lambda: at.now)
    monkeypatch.setattr("memline.shared.queue.fleet_workers.time", clock)
    monkeypatch.setattr(redis_broker, "on_redis", lambda *_, **__: None)

    def run(fleet_of):
        monkeypatch.setattr("memline.shared.queue.fleet_workers.fleet_at", lambda _: fleet_of(at.now - began))
        began, named = at.now, 0.0
        with fleet_workers(URL, place.agent) as check, pytest.raises(QueueError) as fault:
            while True:
                said = check(wants_vectors=True)
                named = named or (at.now - began if said else 0.0)
                at.now += ROUND_S
        return named, at.now - began, fault.value

    place.index_path.parent.mkdir(parents=True, exist_ok=True)
    with closing(hold(place.index_path, "store", 0.0)):
        yield run


def of_all(s, away_s):
    """A fleet whose Redis is away from a second on."""
    away = QueueError("away", hint="redis-server")
    return fleet("chunk", "store", "embed") if s <= away_s else Fleet(error=away)


#: What is there -> the second of its loss, when the run ends after that, and what helps.
LOSSES = {
    "no embed worker": (lambda _: fleet("chunk", "store"), 0.0, MISSING_S, "memline worker embed"),
    "an embed worker is killed": (
        lambda s: fleet("chunk", "store", *["embed"] * (s < TTL_S)), TTL_S, MISSING_S, "memline worker embed",
    ),
    "a batch waits for its worker": (
        lambda _: fleet("chunk", "store", "embed", batches=1), 0.0, MISSING_S, "memline worker batch",
    ),
    "no fleet": (lambda _: fleet(), 0.0, MISSING_S, "memline worker chunk embed store"),
    "Redis is killed": (lambda s: of_all(s, 9.0), 9.0, MISSING_S, "redis-server"),
}  # fmt: skip


@pytest.mark.parametrize(("fleet_of", "lost_s", "ended_s", "hint"), LOSSES.values(), ids=LOSSES)
def test_what_is_missing_is_named_and_ends_the_run(loop, fleet_of, lost_s, ended_s, hint):
    named, ended, error = loop(fleet_of)

    assert named <= lost_s + NAMED_S - TTL_S
    assert lost_s + ended_s - 1 <= ended <= lost_s + ended_s + 1
    assert error.hint == hint


def test_a_message_of_the_run_that_failed_for_good_ends_it(loop, monkeypatch):
    letter = SimpleNamespace(age_s=1.0, queue="chunk", error="it is full")
    monkeypatch.setattr(dead_letters, "listed", lambda *_, **__: [letter])

    _, _, error = loop(lambda s: fleet("chunk", "store", "embed", dead=int(s > 5)))

    assert error.message == "a worker of the queue 'chunk' failed: it is full"


def test_a_worker_has_several_heartbeats_to_miss_before_it_counts_as_gone():
    assert 3 * HEARTBEAT_S <= TTL_S <= NAMED_S
