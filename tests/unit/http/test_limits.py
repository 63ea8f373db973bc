from __future__ import annotations

from producers.http.limits import MAX_CLIENTS, PerMinute
from shared.clock import ManualClock


def test_so_many_requests_are_allowed_in_any_minute() -> None:
    clock = ManualClock()
    limits = PerMinute(3, monotonic=clock.now)

    assert [limits.take("a") for _ in range(3)] == [0, 0, 0]
    clock.advance(45)
    assert limits.take("a") == 15
    clock.advance(15.001)
    assert [limits.take("a") for _ in range(3)] == [0, 0, 0]
    assert limits.take("a") > 0


def test_a_request_that_was_refused_does_not_count() -> None:
    clock = ManualClock()
    limits = PerMinute(1, monotonic=clock.now)
    limits.take("a")
    for _ in range(10):
        clock.advance(5.9)
        assert limits.take("a") > 0

    clock.advance(2)
    assert limits.take("a") == 0


def test_clients_do_not_count_for_each_other() -> None:
    limits = PerMinute(1)

    assert (limits.take("a"), limits.take("b")) == (0, 0)
    assert limits.take("a") > 0


def test_without_a_limit_nothing_is_counted() -> None:
    limits = PerMinute(0)

    assert {limits.take("a") for _ in range(1_000)} == {0.0}
    assert not limits._asked


def test_clients_that_never_come_back_are_forgotten() -> None:
    limits = PerMinute(5)

    for number in range(MAX_CLIENTS + 500):
        limits.take(str(number))

    assert len(limits._asked) == MAX_CLIENTS
