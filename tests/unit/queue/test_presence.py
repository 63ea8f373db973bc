from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import dramatiq
import pytest
import redis

from shared.queue.fleet import FleetBroker
from shared.queue.presence import Presence, is_served, workers_seen
from tests.support.workspace import until
from tests.unit.queue.conftest import URL


@pytest.fixture
def broker(redis_server: redis.Redis) -> FleetBroker:
    return FleetBroker(URL, middleware=[])


def worker(*queues: str, threads: int = 4) -> dramatiq.Worker:
    return cast(dramatiq.Worker, SimpleNamespace(consumer_whitelist=set(queues), worker_threads=threads))


@pytest.fixture
def presence(broker: FleetBroker) -> Iterator[Presence]:
    presence = Presence()
    presence.after_worker_boot(broker, worker("embed"))
    yield presence
    presence.before_worker_shutdown(broker, worker("embed"))


def test_a_worker_is_seen_with_its_queue_host_and_pid_while_it_lives(
    redis_server: redis.Redis, presence: Presence
) -> None:
    until(lambda: len(workers_seen(redis_server)) == 1)

    (seen,) = workers_seen(redis_server)
    assert (seen.queues, seen.threads) == (("embed",), 4)
    assert seen.host and seen.pid
    assert is_served(redis_server, "embed") and not is_served(redis_server, "store")


def test_a_worker_that_ended_is_seen_no_more(redis_server: redis.Redis, broker: FleetBroker) -> None:
    presence = Presence()
    presence.after_worker_boot(broker, worker("store"))
    until(lambda: len(workers_seen(redis_server)) == 1)

    presence.before_worker_shutdown(broker, worker("store"))

    assert workers_seen(redis_server) == []


def test_a_worker_that_was_killed_is_forgotten_when_its_key_is_gone(
    redis_server: redis.Redis, broker: FleetBroker, presence: Presence
) -> None:
    until(lambda: len(workers_seen(redis_server)) == 1)
    (seen,) = workers_seen(redis_server)
    assert 0 < redis_server.ttl(f"memline:worker:{seen.id}") <= 10

    redis_server.delete(f"memline:worker:{seen.id}")

    assert workers_seen(redis_server) == []


def test_a_redis_that_is_away_does_not_end_the_thread(
    redis_server: redis.Redis, broker: FleetBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fail(*_: Any, **__: Any) -> Any:
        failed.set()
        raise redis.ConnectionError("gone")

    presence = Presence()
    monkeypatch.setattr("shared.queue.presence.BEAT_S", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr("redis.client.Pipeline.execute", fail)
        presence.after_worker_boot(broker, worker("embed"))
        assert failed.wait(5)

    until(lambda: is_served(redis_server, "embed"))
    presence.before_worker_shutdown(broker, worker("embed"))
