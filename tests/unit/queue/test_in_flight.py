from types import SimpleNamespace

import msgspec
import pytest
import redis

from memline.shared.errors import QueueError
from memline.shared.queue.heartbeat import WorkerInfo
from memline.shared.queue.in_flight import (
    LOOK_EVERY_S,
    MAX_ROWS_IN_FLIGHT,
    PER_THREAD,
    InProcessRequests,
    RedisRequests,
    rows_per_request,
)
from memline.shared.queue.middleware import SkipRevoked
from tests.unit.queue.conftest import URL


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A monotonic clock that a test moves."""
    clock = SimpleNamespace(now=1_000.0)
    time = SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr("memline.shared.queue.in_flight.time", time)
    return clock


def live(redis_server: redis.Redis, name: str, **threads_of: int) -> None:
    """A worker that has given a heartbeat."""
    redis_server.sadd("memline:workers", name)
    info = WorkerInfo(id=name, threads_of=threads_of, host="h", pid=1, version="1", started=0)
    redis_server.set(f"memline:worker:{name}", msgspec.msgpack.encode(info))


# Credits.


def test_each_embed_thread_alive_gets_two_requests(redis_server: redis.Redis) -> None:
    live(redis_server, "a", embed=4)
    live(redis_server, "b", chunk=3, embed=8)
    live(redis_server, "c", chunk=2)

    assert RedisRequests(URL).credits() == PER_THREAD * 12


def test_credits_follow_workers_that_come_and_go(redis_server: redis.Redis, clock: SimpleNamespace) -> None:
    live(redis_server, "a", embed=4)
    requests = RedisRequests(URL)
    assert requests.credits() == 8

    live(redis_server, "b", embed=4)
    assert requests.credits() == 8
    clock.now += LOOK_EVERY_S
    assert requests.credits() == 16

    redis_server.delete("memline:worker:a")
    clock.now += LOOK_EVERY_S
    assert requests.credits() == 8
    assert redis_server.smembers("memline:workers") == {b"b"}


def test_without_a_worker_there_are_the_credits_of_one_process(redis_server: redis.Redis) -> None:
    assert RedisRequests(URL).credits() == InProcessRequests().credits() == PER_THREAD * 4


def test_while_redis_is_away_the_credits_stay_as_they_were(
    redis_server: redis.Redis, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(redis_server, "a", embed=16)
    requests = RedisRequests(URL)
    requests.credits()

    def refuse(*_: object) -> int:
        raise redis.ConnectionError("refused")

    monkeypatch.setattr("memline.shared.queue.in_flight.embed_threads", refuse)
    clock.now += LOOK_EVERY_S

    assert requests.credits() == PER_THREAD * 16


def test_many_credits_make_smaller_requests_so_that_redis_stays_small() -> None:
    assert rows_per_request(256, 8) == 256
    assert rows_per_request(2_048, 8) == MAX_ROWS_IN_FLIGHT // 8
    assert rows_per_request(256, 128) * 128 == MAX_ROWS_IN_FLIGHT
    assert rows_per_request(256, 10 * MAX_ROWS_IN_FLIGHT) == 1


# Whether batches are served.


def test_batches_count_as_served_while_their_worker_may_only_be_restarting(
    redis_server: redis.Redis, clock: SimpleNamespace
) -> None:
    redis_server.set("memline:serving:batch", "x")
    requests = RedisRequests(URL)
    clock.now += 100
    assert requests.serves_batches()

    redis_server.delete("memline:serving:batch")
    clock.now += 20
    assert requests.serves_batches()
    clock.now += 11
    assert not requests.serves_batches()

    redis_server.set("memline:serving:batch", "y")
    clock.now += 3
    assert requests.serves_batches()


def test_batches_that_were_never_served_are_given_up_after_half_a_minute(
    redis_server: redis.Redis, clock: SimpleNamespace
) -> None:
    requests = RedisRequests(URL)

    assert requests.serves_batches()
    clock.now += 31
    assert not requests.serves_batches()


# Requests and their answers.


@pytest.mark.parametrize("is_delayed", [True, False])
def test_a_request_whose_answer_is_retried_is_not_missing(
    redis_server: redis.Redis, is_delayed: bool
) -> None:
    requests = RedisRequests(URL)
    requests.missing(["a", "b"], asked=100, now=100)
    redis_server.hset("memline:store.msgs", "a.0123", b"")
    if is_delayed:
        redis_server.zadd("memline:store.delayed", {"a.0123": 1})
    else:
        # Its retry is due, and the sweep that looks now lay before it on the queue.
        redis_server.rpush("memline:store", "a.0123")

    assert requests.missing(["a", "b"], asked=105, now=105) == ["b"]
    assert requests.answered() == {"a"}


def test_without_leases_nothing_is_missing_or_dead(redis_server: redis.Redis) -> None:
    requests = RedisRequests(URL)

    assert requests.missing([], asked=1, now=2) == []
    assert requests.dead_lettered([]) == {}


def test_a_request_is_missing_only_when_a_sweep_that_was_asked_for_later_misses_it_again(
    redis_server: redis.Redis,
) -> None:
    requests = RedisRequests(URL)

    assert requests.missing(["a"], asked=100, now=100.5) == []
    # It was asked for before the first look: an answer may lie behind it on the queue.
    assert requests.missing(["a"], asked=100.2, now=103) == []
    assert requests.missing(["a"], asked=105, now=105.1) == ["a"]


def test_a_request_that_is_there_again_is_not_missing(redis_server: redis.Redis) -> None:
    requests = RedisRequests(URL)
    requests.missing(["a"], asked=100, now=100)
    redis_server.hset("memline:embed.msgs", "a", b"")

    assert requests.missing(["a"], asked=105, now=105) == []
    redis_server.delete("memline:embed.msgs")
    assert requests.missing(["a"], asked=110, now=110) == []


def test_a_request_or_an_answer_that_is_a_dead_letter_is_told_with_its_error(
    redis_server: redis.Redis,
) -> None:
    for queue, name, error in (
        ("embed", "a", "no such agent"),
        ("embed", "unrelated", "no"),
        ("store", "b.0123", "version 2"),
    ):
        redis_server.zadd(f"memline:{queue}.XQ", {name: 1})
        content = msgspec.msgpack.encode({"options": {"error": error}})
        redis_server.hset(f"memline:{queue}.XQ.msgs", name, content)

    assert RedisRequests(URL).dead_lettered(["a", "b", "c"]) == {"a": "no such agent", "b": "version 2"}


def test_a_request_that_is_revoked_is_on_no_queue(redis_server: redis.Redis) -> None:
    for token in ("a", "b"):
        redis_server.rpush("memline:embed", token)
        redis_server.hset("memline:embed.msgs", token, b"")

    RedisRequests(URL).revoke(["a", "gone"])

    assert redis_server.lrange("memline:embed", 0, -1) == [b"b"]
    assert redis_server.hkeys("memline:embed.msgs") == [b"b"]


def test_a_worker_whose_redis_is_away_says_so_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def away(*_: object) -> None:
        raise QueueError("Redis cannot be reached")

    message = SimpleNamespace(queue_name="embed", message_id="m", options={"redis_message_id": "r"})
    SkipRevoked().before_process_message(SimpleNamespace(retry=away, has_taken=None), message)

    assert [bool(record.exc_info) for record in caplog.records] == [False]
    assert "not_checked" in caplog.text


def test_the_depth_of_the_store_queue_is_what_waits_there(redis_server: redis.Redis) -> None:
    redis_server.rpush("memline:store", "a", "b")

    assert RedisRequests(URL).store_depth() == 2


def test_files_count_as_on_their_way_until_their_chunk_worker_is_done(redis_server: redis.Redis) -> None:
    requests = RedisRequests(URL)
    assert not requests.is_chunking()

    # A message stays in the hash while a worker has it.
    redis_server.hset("memline:chunk.msgs", "a", b"")

    assert requests.is_chunking()
