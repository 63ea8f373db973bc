from __future__ import annotations

from types import SimpleNamespace

import pytest
import redis

from shared.queue import served
from shared.queue.served import Served
from tests.unit.queue.conftest import URL


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that is moved by hand."""
    time = SimpleNamespace(at=1_000.0)
    monkeypatch.setattr(served, "time", SimpleNamespace(monotonic=lambda: time.at))
    return time


def test_a_queue_counts_as_served_while_its_worker_may_only_be_restarting(
    redis_server: redis.Redis, time: SimpleNamespace
) -> None:
    redis_server.set("memline:serving:batch", "x")
    is_served = Served(URL, "batch")
    time.at += 100
    assert is_served()

    redis_server.delete("memline:serving:batch")
    time.at += 20
    assert is_served()
    time.at += 11
    assert not is_served()

    redis_server.set("memline:serving:batch", "y")
    time.at += 3
    assert is_served()


def test_a_queue_that_was_never_served_is_given_up_after_half_a_minute(
    redis_server: redis.Redis, time: SimpleNamespace
) -> None:
    is_served = Served(URL, "batch")

    assert is_served()
    time.at += 31
    assert not is_served()
