import time

import msgspec
import redis

from memline.shared.queue import message_list
from memline.shared.queue.message_list import Filter
from tests.unit.queue.conftest import URL


def dead_letter(
    server: redis.Redis, queue: str, name: str, *, agent: str = "main", error: str = "", ago_s: float = 0
) -> None:
    """Put a dead letter as the broker leaves it."""
    options = {"error": error, "retries": 3}
    message = {"actor_name": f"{queue}_it", "args": [{"agent": agent}], "options": options}
    server.zadd(f"memline:{queue}.XQ", {name: (time.time() - ago_s) * 1000})
    server.hset(f"memline:{queue}.XQ.msgs", name, msgspec.msgpack.encode(message))


def names(match: str = "") -> list[str]:
    return [letter.id for letter in message_list.listed(URL, Filter(match=match))]


def test_letters_are_listed_oldest_first_with_what_they_were_and_why(redis_server: redis.Redis) -> None:
    dead_letter(redis_server, "store", "b", error="OSError: disk full", ago_s=10)
    dead_letter(redis_server, "store", "a", agent="work", error="no", ago_s=20)

    old, young = message_list.listed(URL, Filter())

    assert (old.id, old.queue, old.actor, old.agent, old.error) == ("a", "store", "store_it", "work", "no")
    assert young.error == "OSError: disk full"
    assert old.dead_s is not None and 19 < old.dead_s < 600


def test_letters_are_found_by_queue_actor_agent_error_or_id(redis_server: redis.Redis) -> None:
    dead_letter(redis_server, "store", "one", error="OSError: disk full")
    dead_letter(redis_server, "embed", "two", agent="work", error="ValueError: no")

    assert names("store") == ["one"]
    assert names("embed_*") == ["two"]
    assert names("work") == ["two"]
    assert names("*disk*") == ["one"]
    assert names("t*") == ["two"]
    assert names("nothing") == []


def test_a_letter_that_cannot_be_decoded_is_listed_too(redis_server: redis.Redis) -> None:
    for name, data in {"noise": b"\xc1", "a list": b"\x90", "no actor": b"\x80"}.items():
        redis_server.zadd("memline:chunk.XQ", {name: 1})
        redis_server.hset("memline:chunk.XQ.msgs", name, data)

    errors = {letter.id: letter.error for letter in message_list.listed(URL, Filter())}

    assert errors == dict.fromkeys(["noise", "a list", "no actor"], "the message cannot be decoded")


def test_errors_of_one_agent_since_a_moment(redis_server: redis.Redis) -> None:
    began = time.time()
    dead_letter(redis_server, "store", "before", error="old", ago_s=60)
    dead_letter(redis_server, "store", "other", agent="work", error="not ours")
    dead_letter(redis_server, "store", "ours", error="new")

    assert message_list.errors_since(redis_server, "store", "main", began - 1) == ["new"]
