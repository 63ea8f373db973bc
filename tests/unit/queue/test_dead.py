from __future__ import annotations

import time

import msgspec
import redis

from shared.queue import dead
from shared.queue.broker import QUEUES
from tests.unit.queue.conftest import URL


def bury(
    server: redis.Redis, queue: str, name: str, *, agent: str = "main", error: str = "", ago_s: float = 0
) -> None:
    """A dead letter as the broker leaves it."""
    message = {"actor_name": f"{queue}_it", "args": [{"agent": agent}]}
    server.zadd(f"memline:{queue}.XQ", {name: (time.time() - ago_s) * 1000})
    server.hset(f"memline:{queue}.XQ.msgs", name, msgspec.msgpack.encode(message))
    if error:
        server.hset("memline:dead.errors", name, error)


def names(match: str = "*") -> list[str]:
    return [letter.id for letter in dead.letters(URL, QUEUES, match=match)]


def test_letters_are_listed_oldest_first_with_what_they_were_and_why(
    redis_server: redis.Redis,
) -> None:
    bury(redis_server, "store", "b", error="OSError: disk full", ago_s=10)
    bury(redis_server, "store", "a", agent="work", ago_s=20)

    old, young = dead.letters(URL, QUEUES)

    assert (old.id, old.queue, old.actor, old.agent, old.error) == ("a", "store", "store_it", "work", "")
    assert young.error == "OSError: disk full"
    assert 19 < old.age_s < 25


def test_letters_are_found_by_queue_actor_agent_error_or_id(redis_server: redis.Redis) -> None:
    bury(redis_server, "store", "one", error="OSError: disk full")
    bury(redis_server, "embed", "two", agent="work", error="ValueError: no")

    assert names("store") == ["one"]
    assert names("embed_*") == ["two"]
    assert names("work") == ["two"]
    assert names("*disk*") == ["one"]
    assert names("t*") == ["two"]
    assert names("nothing") == []


def test_a_letter_that_cannot_be_decoded_is_listed_too(redis_server: redis.Redis) -> None:
    for name, data in {"noise": b"\xc1", "a list": b"\x90", "no arguments": b"\x80"}.items():
        redis_server.zadd("memline:chunk.XQ", {name: 1})
        redis_server.hset("memline:chunk.XQ.msgs", name, data)

    errors = {letter.id: letter.error for letter in dead.letters(URL, QUEUES)}

    assert errors == {
        "noise": "the message cannot be decoded",
        "a list": "the message cannot be decoded",
        "no arguments": "",
    }


def test_a_letter_that_is_put_back_waits_at_the_end_of_its_queue_and_is_dead_no_more(
    redis_server: redis.Redis,
) -> None:
    bury(redis_server, "store", "one", error="OSError: disk full")
    bury(redis_server, "store", "two")
    redis_server.rpush("memline:store", "before")
    letters = dead.letters(URL, QUEUES, match="one")

    first, second = dead.requeue(URL, letters), dead.requeue(URL, letters)

    assert (first, second) == (1, 0)
    assert redis_server.lrange("memline:store", 0, -1) == [b"before", b"one"]
    assert redis_server.hexists("memline:store.msgs", "one")
    assert names() == ["two"]
    assert not redis_server.exists("memline:dead.errors")


def test_a_letter_that_is_dropped_leaves_nothing(redis_server: redis.Redis) -> None:
    bury(redis_server, "store", "one", error="OSError: disk full")
    letters = dead.letters(URL, QUEUES)

    assert (dead.drop(URL, letters), dead.drop(URL, letters)) == (1, 0)
    assert redis_server.keys() == []


def test_errors_of_one_agent_since_a_moment(redis_server: redis.Redis) -> None:
    began = time.time()
    bury(redis_server, "store", "before", error="old", ago_s=60)
    bury(redis_server, "store", "other", agent="work", error="not ours")
    bury(redis_server, "store", "ours", error="new")

    assert dead.errors_since(redis_server, "store", "main", began - 1) == ["new"]
