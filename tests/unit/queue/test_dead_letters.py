import time

import msgspec
import pytest

from memline.shared.queue import dead_letters
from memline.shared.queue.messages import Envelope
from tests.unit.queue.conftest import URL


def dead_letter(server, queue, name, *, agent="main", error="", ago_s=0):
    """Put a dead letter as the broker leaves it."""
    message = Envelope(queue, f"{queue}_it", [{"agent": agent}], {}, {"retries": 3}, name, 1)
    server.zadd(f"memline:{queue}.XQ", {name: (time.time() - ago_s) * 1000})
    content = msgspec.msgpack.encode(msgspec.structs.asdict(message))
    server.hset(f"memline:{queue}.XQ.msgs", name, content)
    server.set(f"memline:error:{name}", error)


def names(**where):
    return [letter.id for letter in dead_letters.listed(URL, **where)]


def test_letters_are_listed_oldest_first_with_what_they_were_and_why(redis_server):
    dead_letter(redis_server, "store", "b", error="OSError: disk full", ago_s=10)
    dead_letter(redis_server, "store", "a", agent="work", error="no", ago_s=20)

    old, young = dead_letters.listed(URL)

    assert (old.id, old.queue, old.actor, old.agent, old.error) == ("a", "store", "store_it", "work", "no")
    assert young.error == "OSError: disk full" and 9 < young.age_s < 600
    assert names(agent="work") == ["a"]
    assert names(error="disk") == ["b"]


def test_letters_are_grouped_by_what_their_errors_have_in_common(redis_server):
    errors = ["no file 'a.md'", "OSError: disk is full", "no file 'b c.md'", "OSError: disk is gone", "no"]
    errors += ["pid 4211 ended", "pid 5312 ended", "status 401", "status 500", "at /x/y", "at /z"]
    for number, error in enumerate(errors):
        dead_letter(redis_server, "chunk", f"m{number:02}", error=error, ago_s=60 - number)

    found = dead_letters.by_error(dead_letters.listed(URL))

    together = [["m00", "m02"], ["m05", "m06"], ["m09", "m10"]]
    alone = [[f"m{number:02}"] for number in (1, 3, 4, 7, 8)]
    assert [[each.id for each in letters] for letters in found.values()] == together + alone
    assert names(error=next(iter(found))) == ["m00", "m02"]


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"\x90",
        b"\x80",
        msgspec.msgpack.encode({"actor_name": 3, "args": 5, "options": "x"}),
        msgspec.msgpack.encode({"actor_name": "a", "args": [{"agent": 1}]}),
    ],
)
def test_what_is_no_message_is_listed_all_the_same(redis_server, data):
    redis_server.zadd("memline:chunk.XQ", {"odd": 1})
    redis_server.hset("memline:chunk.XQ.msgs", "odd", data)

    (letter,) = dead_letters.listed(URL)

    assert letter.id == "odd" and letter.error
