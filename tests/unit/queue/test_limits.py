from __future__ import annotations

from shared.clock import ManualClock
from shared.queue.limits import InProcessLimits


def test_without_limits_everything_goes_at_once() -> None:
    limits = InProcessLimits(ManualClock())

    assert [limits.take("openai", tokens=10**6) for _ in range(100)] == [0.0] * 100


def test_no_minute_holds_more_requests_than_allowed() -> None:
    clock = ManualClock()
    limits = InProcessLimits(clock)
    went: list[float] = []

    for _ in range(1_000):
        if limits.take("openai", tokens=1, max_requests=7) == 0:
            went.append(clock.now())
        clock.advance(0.37)

    assert len(went) > 40
    assert all(sum(begin <= at < begin + 60 for at in went) <= 7 for begin in went)


def test_the_wait_is_as_long_as_it_takes_and_no_longer() -> None:
    clock = ManualClock()
    limits = InProcessLimits(clock)
    limits.take("openai", tokens=60, max_tokens=100)
    clock.advance(10)
    limits.take("openai", tokens=40, max_tokens=100)
    clock.advance(5)

    wait_s = limits.take("openai", tokens=50, max_tokens=100)
    clock.advance(wait_s)

    assert wait_s == 45
    assert limits.take("openai", tokens=50, max_tokens=100) == 0


def test_a_request_above_the_whole_budget_goes_alone() -> None:
    clock = ManualClock()
    limits = InProcessLimits(clock)

    assert limits.take("openai", tokens=500, max_tokens=100) == 0
    assert limits.take("openai", tokens=1, max_tokens=100) == 60


def test_a_hold_keeps_everybody_waiting_and_is_never_cut_short() -> None:
    clock = ManualClock()
    limits = InProcessLimits(clock)
    limits.hold("openai", 60)
    limits.hold("openai", 1)

    assert limits.take("openai", tokens=1) == 60
    assert limits.take("voyage", tokens=1) == 0
    clock.advance(60)
    assert limits.take("openai", tokens=1) == 0
