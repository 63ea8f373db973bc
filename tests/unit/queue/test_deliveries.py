from __future__ import annotations

import redis

from shared.queue.deliveries import Deliveries
from tests.unit.queue.conftest import URL


def test_without_leases_nothing_is_lost_and_nothing_has_died(redis_server: redis.Redis) -> None:
    deliveries = Deliveries(URL)

    assert deliveries.lost([], asked=1, now=2) == []
    assert deliveries.died([]) == {}


def test_a_request_is_lost_only_when_a_sweep_that_was_asked_for_later_misses_it_again(
    redis_server: redis.Redis,
) -> None:
    deliveries = Deliveries(URL)

    assert deliveries.lost(["a"], asked=100, now=100.5) == []
    # It was asked for before the first look: an answer may lie behind it on the queue.
    assert deliveries.lost(["a"], asked=100.2, now=103) == []
    assert deliveries.lost(["a"], asked=105, now=105.1) == ["a"]


def test_a_request_that_is_there_again_is_not_lost(redis_server: redis.Redis) -> None:
    deliveries = Deliveries(URL)
    deliveries.lost(["a"], asked=100, now=100)
    redis_server.hset("memline:embed.msgs", "a", b"")

    assert deliveries.lost(["a"], asked=105, now=105) == []
    redis_server.delete("memline:embed.msgs")
    assert deliveries.lost(["a"], asked=110, now=110) == []


def test_a_request_or_an_answer_that_is_a_dead_letter_has_died(
    redis_server: redis.Redis,
) -> None:
    redis_server.zadd("memline:embed.XQ", {"a": 1, "unrelated": 2})
    redis_server.zadd("memline:store.XQ", {"b.0123": 1})
    redis_server.hset("memline:dead.errors", mapping={"a": "no such agent", "b.0123": "version 2"})

    assert Deliveries(URL).died(["a", "b", "c"]) == {"a": "no such agent", "b": "version 2"}


def test_a_request_that_is_withdrawn_is_on_no_queue(redis_server: redis.Redis) -> None:
    for token in ("a", "b"):
        redis_server.rpush("memline:embed", token)
        redis_server.hset("memline:embed.msgs", token, b"")

    Deliveries(URL).withdraw(["a", "gone"])

    assert redis_server.lrange("memline:embed", 0, -1) == [b"b"]
    assert redis_server.hkeys("memline:embed.msgs") == [b"b"]


def test_the_depth_of_the_store_queue_is_what_waits_there(redis_server: redis.Redis) -> None:
    redis_server.rpush("memline:store", "a", "b")

    assert Deliveries(URL).store_depth() == 2


def test_files_count_as_on_their_way_until_their_chunk_worker_is_done(redis_server: redis.Redis) -> None:
    deliveries = Deliveries(URL)
    assert not deliveries.is_any_chunking()

    # A message stays in the hash while a worker has it.
    redis_server.hset("memline:chunk.msgs", "a", b"")

    assert deliveries.is_any_chunking()
