from __future__ import annotations

import random

from memline.shared.clock import ManualClock
from memline.shared.queue.limits import WINDOW_S, InProcessLimits


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

    assert wait_s == WINDOW_S - 15
    assert limits.take("openai", tokens=50, max_tokens=100) == 0


def test_a_request_above_the_whole_budget_goes_alone() -> None:
    clock = ManualClock()
    limits = InProcessLimits(clock)

    assert limits.take("openai", tokens=500, max_tokens=100) == 0
    assert limits.take("openai", tokens=1, max_tokens=100) == WINDOW_S


def test_places_are_given_ahead_in_order_to_those_who_wait_for_them() -> None:
    clock = ManualClock()
    limits = InProcessLimits(clock)

    def take(max_wait_s: float) -> float:
        return limits.take("openai", tokens=1, max_requests=2, max_wait_s=max_wait_s)

    assert [take(0), take(0)] == [0, 0]
    clock.advance(60)
    waits = [take(1), take(5), take(5), take(100)]

    # The first would not wait and got none; the next two have the places of the first two.
    assert waits == [2, 2, 2, 64]
    clock.advance(2)
    assert take(0) == WINDOW_S


def test_no_minute_holds_more_tokens_than_allowed_whatever_the_sizes_and_the_waits() -> None:
    clock = ManualClock()
    limits = InProcessLimits(clock)
    source = random.Random(7)
    went: list[tuple[float, int]] = []

    for _ in range(2_000):
        tokens, max_wait_s = source.randint(1, 30), source.choice([0.0, 5.0])
        wait_s = limits.take("p", tokens=tokens, max_requests=12, max_tokens=100, max_wait_s=max_wait_s)
        if wait_s <= max_wait_s:
            went.append((clock.now() + wait_s, tokens))
        clock.advance(source.random())

    for begin, _ in went:
        inside = [tokens for at, tokens in went if begin <= at < begin + 60]
        assert sum(inside) <= 100
        assert len(inside) <= 12
    served = sum(tokens for _, tokens in went)
    assert served > 0.85 * 100 * (went[-1][0] - went[0][0]) / 60


def test_a_cooldown_is_told() -> None:
    clock = ManualClock()
    limits = InProcessLimits(clock)
    limits.cool_down("openai", 10)
    clock.advance(4)

    assert (limits.cooldown_s("openai"), limits.cooldown_s("voyage")) == (6, 0)


def test_a_cooldown_keeps_all_callers_waiting_and_is_never_cut_short() -> None:
    clock = ManualClock()
    limits = InProcessLimits(clock)
    limits.cool_down("openai", 60)
    limits.cool_down("openai", 1)

    assert limits.take("openai", tokens=1) == 60
    assert limits.take("voyage", tokens=1) == 0
    clock.advance(60)
    assert limits.take("openai", tokens=1) == 0
