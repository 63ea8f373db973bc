import threading
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest
import redis

from memline.shared.errors import BadRequest
from memline.shared.queue.heartbeat import (
    Heartbeat,
    drain,
    embed_threads,
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


class _Message:
    message_id, queue_name, actor_name, args = "m1", "embed", "embed_texts", ({"agent": "main"},)
    options = MappingProxyType[str, str]({})


@pytest.mark.usefixtures("often")
def test_a_worker_tells_what_it_works_on_and_its_memory(
    redis_server: redis.Redis, heartbeat: Heartbeat
) -> None:
    heartbeat.before_process_message(None, _Message)
    until(lambda: any(each.current for each in live_workers(redis_server)))
    told = live_workers(redis_server)[0].to_json()
    heartbeat.after_process_message(None, _Message)
    until(lambda: not any(each.current for each in live_workers(redis_server)))

    assert told["threadsBusy"] == 1
    assert {**told["current"][0], "ageSeconds": 0} == {
        "id": "m1",
        "queue": "embed",
        "actor": "embed_texts",
        "agent": "main",
        "ageSeconds": 0,
    }
    assert told["memoryBytes"] is None or told["memoryBytes"] > 1_000_000


def test_a_worker_that_is_asked_to_end_is_told_at_each_heartbeat_and_serves_no_queue(
    redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memline.shared.queue.heartbeat.HEARTBEAT_S", 0.01)
    monkeypatch.setattr("memline.shared.queue.heartbeat.DRAINING_S", 0.01)
    calls: list[int] = []
    heartbeat = Heartbeat()
    heartbeat.start(URL, "w1", {"embed": 4}, on_drain=lambda: calls.append(1))
    until(lambda: len(live_workers(redis_server)) == 1)
    assert not calls

    asked = drain(URL, "w")

    until(lambda: len(calls) > 1)
    until(lambda: live_workers(redis_server)[0].is_draining)
    assert asked.id == "w1" and embed_threads(redis_server) == 0
    redis_server.delete("memline:serving:embed")
    told = len(calls)
    until(lambda: len(calls) > told + 2)
    assert not is_served(redis_server, "embed")
    heartbeat.stop()
    assert redis_server.keys("memline:*drain*") == []


@pytest.mark.usefixtures("heartbeat")
@pytest.mark.parametrize("name", ["", "w2", "0", "nowhere:1"])
def test_a_worker_that_is_not_there_cannot_be_asked_to_end(redis_server: redis.Redis, name: str) -> None:
    until(lambda: len(live_workers(redis_server)) == 1)

    with pytest.raises(BadRequest, match="there is no worker") as error:
        drain(URL, name)

    assert f":{live_workers(redis_server)[0].pid}" in error.value.hint


def test_a_name_that_means_several_workers_is_refused(redis_server: redis.Redis) -> None:
    both = [Heartbeat(), Heartbeat()]
    for number, each in enumerate(both):
        each.start(URL, f"w{number}", {"embed": 1})
    until(lambda: len(live_workers(redis_server)) == 2)

    with pytest.raises(BadRequest, match="2 workers are called 'w'"):
        drain(URL, "w")

    for each in both:
        each.stop()
