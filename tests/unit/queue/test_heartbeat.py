import pytest

from memline.shared.errors import QueueError
from memline.shared.queue import heartbeat as heartbeats
from memline.shared.queue.heartbeat import TTL_S, Heartbeat, live_workers
from tests.support.workspace import until
from tests.unit.queue.conftest import URL


@pytest.fixture
def heartbeat(redis_server, monkeypatch):
    monkeypatch.setattr(heartbeats, "HEARTBEAT_S", 0.01)
    heartbeat = Heartbeat(URL, {"embed": 4, "query": 2})
    heartbeat.start()
    until(lambda: len(live_workers(redis_server)) == 1)
    yield heartbeat
    heartbeat.stop()


def test_a_worker_is_listed_with_its_queues_host_and_pid_until_it_ends(redis_server, heartbeat):
    (worker,) = live_workers(redis_server)
    assert (worker.queues, worker.to_json()["threads"]) == (("embed", "query"), 6)
    assert worker.host and worker.pid

    heartbeat.stop()

    assert live_workers(redis_server) == []


def test_a_worker_that_was_silent_for_a_while_is_forgotten(redis_server, heartbeat, monkeypatch):
    at = heartbeats.redis_client.now(redis_server) + TTL_S + 5
    with monkeypatch.context() as later:
        later.setattr(heartbeats.redis_client, "now", lambda _: at)
        heartbeat.stop()
        redis_server.hset("memline:workers", "w1", _silent(redis_server))

        assert live_workers(redis_server) == []
    assert redis_server.hlen("memline:workers") == 0


def _silent(redis_server):
    info = heartbeats.WorkerInfo(
        id="w1", threads_of={"store": 1}, host="h", pid=1, version="1", started=0, seen=1
    )
    return heartbeats.msgspec.msgpack.encode(info)


def test_a_redis_that_is_away_does_not_end_the_thread(redis_server, heartbeat, monkeypatch):
    failures = []

    def fail(*_):
        failures.append(1)
        raise QueueError("gone")

    with monkeypatch.context() as away:
        away.setattr(heartbeats.redis_client, "now", fail)
        until(lambda: len(failures) > 1)
    redis_server.delete("memline:workers")

    until(lambda: bool(live_workers(redis_server)))
