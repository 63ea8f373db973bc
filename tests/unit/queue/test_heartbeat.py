import msgspec
import pytest

from memline.shared.errors import QueueError
from memline.shared.queue import heartbeat as heartbeats
from memline.shared.queue import redis_client
from memline.shared.queue.fleet import TTL_S, WorkerInfo, live_workers
from memline.shared.queue.heartbeat import Heartbeat
from tests.unit.queue.conftest import URL


@pytest.fixture
def heartbeat(redis_server, monkeypatch):
    monkeypatch.setattr(heartbeats, "HEARTBEAT_S", 0.0)
    heartbeat = Heartbeat(URL, {"embed": 4, "query": 2})
    heartbeat.beat()
    return heartbeat


def test_a_worker_is_listed_with_its_queues_host_and_pid_until_it_ends(redis_server, heartbeat):
    (worker,) = live_workers(redis_server)
    assert (worker.queues, worker.to_json()["threads"]) == (("embed", "query"), 6)
    assert worker.host and worker.pid

    heartbeat.close()

    assert live_workers(redis_server) == []


def test_a_worker_that_was_silent_for_a_while_is_forgotten(redis_server):
    silent = WorkerInfo(id="w1", threads_of={"store": 1}, host="h", pid=1, version="1", started=0, seen=1)
    redis_server.hset("memline:workers", "w1", msgspec.msgpack.encode(silent))

    assert TTL_S > heartbeats.HEARTBEAT_S and live_workers(redis_server) == []
    assert redis_server.hlen("memline:workers") == 0


def test_a_redis_that_is_away_costs_heartbeats_and_no_more(redis_server, heartbeat, monkeypatch):
    def fail(*_):
        raise QueueError("gone")

    redis_server.delete("memline:workers")
    with monkeypatch.context() as away:
        away.setattr(redis_client.FleetClient, "now", fail)
        heartbeat.beat()
    assert live_workers(redis_server) == []

    heartbeat.beat()

    assert len(live_workers(redis_server)) == 1
