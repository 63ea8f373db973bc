"""A command that waits for a fleet says what is missing, and ends, by a clock of the test."""

from types import SimpleNamespace

import pytest

from memline.shared.errors import QueueError
from memline.shared.queue import fleet_workers
from memline.shared.queue.fleet_workers import Fleet
from memline.shared.queue.heartbeat import HEARTBEAT_S, TTL_S
from tests.unit.queue.conftest import URL

#: Seconds after a loss within which it is named, and for which a restart is waited for.
NAMED_S, ENDED_S = 15.0, 30.0

#: Seconds between two rounds of the loop of `index`, which asks at each.
ROUND_S = 0.05


class Loop:
    """The loop of a command that waits for vectors, in a fleet whose embed worker is alive for a time."""

    def __init__(self, monkeypatch):
        self.now, self.seen_until = 1_000.0, 0.0
        monkeypatch.setattr(fleet_workers, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(fleet_workers, "on_redis", lambda *_, **__: None)
        monkeypatch.setattr(fleet_workers, "send", lambda _: None)
        monkeypatch.setattr(fleet_workers, "live_workers", lambda _: self.workers())

    def workers(self):
        roles = ("chunk", "store", "embed") if self.now < self.seen_until else ("chunk", "store")
        return [SimpleNamespace(queues=roles)]

    def run(self):
        """Return the seconds after which a missing worker was named and the loop ended, and the error."""
        began, named = self.now, 0.0
        with Fleet(URL) as fleet, pytest.raises(QueueError) as fault:
            while True:
                is_named = "'embed'" in fleet.check(wants_vectors=True)
                named = named or (self.now - began if is_named else 0.0)
                self.now += ROUND_S
        return named, self.now - began, fault.value


@pytest.fixture
def loop(redis_server, monkeypatch):
    return Loop(monkeypatch)


def test_a_fleet_without_an_embed_worker_is_named_and_ends_the_run(loop):
    named, ended, error = loop.run()

    assert 0 < named <= NAMED_S
    assert ENDED_S <= ended <= ENDED_S + 2 * fleet_workers.LOOK_EVERY_S
    assert error.hint == "memline worker embed"


def test_an_embed_worker_that_was_killed_is_named_as_soon_and_ends_the_run_as_late(loop):
    # Its last heartbeat was just before it was killed.
    loop.seen_until = loop.now + TTL_S

    named, ended, _ = loop.run()

    assert TTL_S < named <= NAMED_S
    assert abs(ended - TTL_S - ENDED_S) <= 2 * fleet_workers.LOOK_EVERY_S


def test_a_worker_has_several_heartbeats_to_miss_before_it_counts_as_gone():
    assert 3 * HEARTBEAT_S <= TTL_S <= NAMED_S
