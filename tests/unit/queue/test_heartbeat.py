import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from memline.shared.queue.heartbeat import (
    Heartbeat,
    is_served,
    live_workers,
)
from tests.support.workspace import until
from tests.unit.queue.conftest import URL


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker shows itself at once."""
    monkeypatch.setattr("memline.shared.queue.heartbeat.HEARTBEAT_S", 0.01)


@pytest.fixture
def heartbeat(redis_server: redis.Redis) -> Iterator[Heartbeat]:
    heartbeat = Heartbeat()
    heartbeat.start(URL, "w1", {"embed": 4, "query": 2})
    yield heartbeat
    heartbeat.stop()


def test_a_worker_is_listed_with_its_queues_host_and_pid_while_it_lives(
    redis_server: redis.Redis, heartbeat: Heartbeat
) -> None:
    until(lambda: len(live_workers(redis_server)) == 1)

    (worker,) = live_workers(redis_server)
    assert (worker.queues, worker.threads_of, worker.threads) == (
        ("embed", "query"),
        {"embed": 4, "query": 2},
        6,
    )
    assert worker.host and worker.pid
    assert is_served(redis_server, "embed") and not is_served(redis_server, "store")


def test_a_worker_that_ended_is_listed_no_more(redis_server: redis.Redis) -> None:
    heartbeat = Heartbeat()
    heartbeat.start(URL, "w1", {"store": 1})
    until(lambda: len(live_workers(redis_server)) == 1)

    heartbeat.stop()

    assert live_workers(redis_server) == []


def test_a_worker_that_was_killed_is_forgotten_when_its_key_is_gone(
    redis_server: redis.Redis, heartbeat: Heartbeat
) -> None:
    until(lambda: len(live_workers(redis_server)) == 1)
    (worker,) = live_workers(redis_server)
    assert 0 < redis_server.ttl(f"memline:worker:{worker.id}") <= 10

    redis_server.delete(f"memline:worker:{worker.id}")

    assert live_workers(redis_server) == []


def test_a_redis_that_is_away_does_not_end_the_thread(
    redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fail(*_: Any, **__: Any) -> Any:
        failed.set()
        raise redis.ConnectionError("gone")

    heartbeat = Heartbeat()
    monkeypatch.setattr("memline.shared.queue.heartbeat.HEARTBEAT_S", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr("redis.client.Pipeline.execute", fail)
        heartbeat.start(URL, "w1", {"embed": 4, "query": 2})
        assert failed.wait(120)

    until(lambda: is_served(redis_server, "embed"))
    heartbeat.stop()
