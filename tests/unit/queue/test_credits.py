from __future__ import annotations

import fakeredis
import pytest
import redis

from shared.queue import presence
from shared.queue.credits import EMBED_THREADS, MAX_ROWS_OUT, PER_THREAD, InProcessCredits, rows_per_request
from shared.queue.redis_credits import LOOK_EVERY_S, RedisCredits

URL = "redis://127.0.0.1:6379/0"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock; its only element may be moved."""
    clock = [1_000.0]
    monkeypatch.setattr("shared.queue.redis_credits.time.monotonic", lambda: clock[0])
    return clock


def live(redis_server: fakeredis.FakeRedis, name: str, queues: str, threads: int) -> None:
    """A worker that has given a sign of life."""
    redis_server.sadd(presence.WORKERS, name)
    fields = {"queues": queues, "host": "h", "pid": 1, "version": "1", "started": 0, "seen": 0}
    redis_server.hset(f"memline:worker:{name}", mapping={**fields, "threads": threads})


def test_each_embed_thread_alive_gets_two_requests(
    redis_server: fakeredis.FakeRedis, now: list[float]
) -> None:
    live(redis_server, "a", "embed", 4)
    live(redis_server, "b", "embed", 8)
    live(redis_server, "c", "chunk", 2)

    assert RedisCredits(URL).now() == PER_THREAD * 12


def test_credits_follow_workers_that_come_and_go(redis_server: fakeredis.FakeRedis, now: list[float]) -> None:
    live(redis_server, "a", "embed", 4)
    credits = RedisCredits(URL)
    assert credits.now() == 8

    live(redis_server, "b", "embed", 4)
    assert credits.now() == 8
    now[0] += LOOK_EVERY_S
    assert credits.now() == 16

    redis_server.delete("memline:worker:a")
    now[0] += LOOK_EVERY_S
    assert credits.now() == 8
    assert redis_server.smembers(presence.WORKERS) == {b"b"}


def test_without_a_worker_one_of_the_procfile_is_reckoned_with(
    redis_server: fakeredis.FakeRedis, now: list[float]
) -> None:
    assert RedisCredits(URL).now() == InProcessCredits().now() == PER_THREAD * EMBED_THREADS


def test_while_redis_is_away_the_credits_stay_as_they_were(
    redis_server: fakeredis.FakeRedis, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    live(redis_server, "a", "embed", 16)
    credits = RedisCredits(URL)
    credits.now()

    def refuse(*_: object) -> int:
        raise redis.ConnectionError("refused")

    monkeypatch.setattr("shared.queue.redis_credits.threads_serving", refuse)
    now[0] += LOOK_EVERY_S

    assert credits.now() == PER_THREAD * 16


def test_many_credits_make_smaller_requests_so_that_redis_stays_small() -> None:
    assert rows_per_request(256, 8) == 256
    assert rows_per_request(2_048, 8) == MAX_ROWS_OUT // 8
    assert rows_per_request(256, 128) * 128 == MAX_ROWS_OUT
    assert rows_per_request(256, 10 * MAX_ROWS_OUT) == 1
