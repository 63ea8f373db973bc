import time
from typing import cast

import msgspec
import pytest

from memline.shared.config.schema import AgentSettings
from memline.shared.queue import fleet, redis_client
from memline.shared.queue.messages import Envelope
from memline.shared.queue.routes import QUEUES
from tests.unit.queue.conftest import URL


@pytest.fixture(autouse=True)
def info(monkeypatch, redis_server):
    """The one command that the server of these tests has not."""
    monkeypatch.setattr(type(redis_server), "info", lambda self, section=None: {})


def lay(redis_server, queue, name, *, age_s=0, waits=True):
    """A message as the broker leaves it: waiting, or taken by a worker."""
    message = Envelope(queue, "a", [], {}, {}, name, int((time.time() - age_s) * 1000))
    redis_server.hset(f"memline:{queue}.msgs", name, msgspec.msgpack.encode(msgspec.structs.asdict(message)))
    if waits:
        redis_server.rpush(f"memline:{queue}", name)


def of(name):
    return next(one for one in fleet.read_fleet(redis_client.client(URL)).queues if one.name == name)


def test_an_empty_redis_has_empty_queues():
    now = fleet.read_fleet(redis_client.client(URL))

    assert [one.name for one in now.queues] == list(QUEUES)
    assert {(one.waiting, one.in_flight, one.delayed, one.dead) for one in now.queues} == {(0, 0, 0, 0)}
    assert now.workers == ()


def test_without_a_fleet_no_index_is_opened_to_tell_which_roles_are_missing():
    assert fleet.Fleet().missing([cast(AgentSettings, None)]) == ()


def test_messages_wait_until_a_worker_takes_them_and_are_in_flight_until_it_is_done(
    redis_server,
):
    for number in range(5):
        lay(redis_server, "embed", f"{number}", waits=number >= 2)
    redis_server.zadd("memline:embed.XQ", {"dead": 1})
    lay(redis_server, "embed.DQ", "delayed", waits=False)

    found = of("embed")

    assert (found.waiting, found.in_flight, found.delayed, found.dead) == (3, 2, 1, 1)
    assert of("chunk").waiting == 0


def test_the_age_is_that_of_the_oldest_message_that_waits(redis_server):
    lay(redis_server, "store", "old", age_s=90)
    lay(redis_server, "store", "young", age_s=5)
    lay(redis_server, "store", "taken", age_s=900, waits=False)

    assert 89 < of("store").oldest_s < 600


def test_messages_that_cannot_be_read_have_no_age(redis_server):
    redis_server.hset("memline:store.msgs", "bad", b"\xc1")
    redis_server.rpush("memline:store", "bad", "gone")

    assert of("store").oldest_s == 0
