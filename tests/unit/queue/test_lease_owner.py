"""The Redis of a fleet owns the leases whose requests it keeps."""

import pytest
import redis

from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.in_flight import RedisRequests
from memline.shared.queue.lease_owner import is_owner_alive, owner_at
from memline.shared.scheduling.leases import current_owner
from tests.unit.queue.conftest import URL


def test_a_redis_owns_leases_for_as_long_as_it_keeps_our_messages(redis_server: redis.Redis) -> None:
    owner = owner_at(redis_server, URL)
    again, while_it_lasts = owner_at(redis_server, URL), is_owner_alive(owner)

    redis_server.flushall()

    assert (again, while_it_lasts, is_owner_alive(owner)) == (owner, True, False)
    assert owner_at(redis_server, URL) != owner


def test_a_redis_that_is_away_owns_nothing() -> None:
    assert not is_owner_alive("redis 0123 redis://127.0.0.1:9/0#memline")


def test_a_redis_that_wants_a_password_may_own_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    def client(*_: object, **__: object) -> redis.Redis:
        raise QueueError("Redis refuses the password") from redis.AuthenticationError("NOAUTH")

    monkeypatch.setattr(redis_client, "client", client)

    assert is_owner_alive("redis 0123 redis://127.0.0.1:6379/0")


def test_the_name_of_an_owner_holds_no_password(redis_server: redis.Redis) -> None:
    owner = owner_at(redis_server, "rediss://user:secret@host:6379/0#team@one")

    assert owner.endswith(" rediss://host:6379/0#team@one")


def test_the_address_of_a_socket_stays_one(redis_server: redis.Redis) -> None:
    for url in ("unix:///run/fleet/redis.sock", "unix://:secret@/run/a@b/redis.sock?db=1#team"):
        address = owner_at(redis_server, url).split(" ", 2)[2]

        assert address == url.replace(":secret@", "")
        assert not is_owner_alive(f"redis 0123 {address}")


def test_a_process_is_asked_as_ever() -> None:
    assert is_owner_alive(current_owner())
    assert not is_owner_alive("fleet")


def test_what_a_redis_lost_under_a_running_store_is_found_missing_and_not_freed_at_once(
    redis_server: redis.Redis,
) -> None:
    requests = RedisRequests(URL)
    before = requests.owner()

    redis_server.flushall()

    assert requests.is_owner_alive(before)
    assert not requests.is_owner_alive("redis 0123 redis://127.0.0.1:9/0")
    assert not is_owner_alive(before, URL)
