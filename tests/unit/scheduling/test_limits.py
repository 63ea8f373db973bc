"""Limits of a minute and cooldowns, shared by all processes of a home."""

import math
import random
from contextlib import closing

import pytest

from memline.shared.index.accounts import AccountFile
from memline.shared.scheduling.limits import WINDOW_S, Limits, costs
from tests.support.clock import ManualClock

#: A call that a minute holds eighteen of.
CALL = costs(tokens=1, max_requests=20)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "accounts.sqlite"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def limits(path, clock):
    with closing(Limits(AccountFile(path), clock)) as limits:
        yield limits


@pytest.mark.parametrize("size", [1, 3, 20, 45, 90, 100])
def test_no_minute_holds_more_than_the_limit_and_most_of_it_is_used(limits, clock, size):
    source, began, went = random.Random(size), clock.now(), list[float]()

    while len(went) < 400:
        max_wait_s = source.choice([0.0, 5.0])
        moves = costs(tokens=size, max_requests=1_000, max_tokens=100)
        wait_s = limits.take("openai", moves, max_wait_s=max_wait_s)
        if wait_s <= max_wait_s:
            went.append(clock.now() + wait_s)
        clock.advance(wait_s)

    for begin in went:
        assert size * sum(begin <= at < begin + 60 for at in went) <= 100
    assert size * len(went) > 0.5 * 100 * (went[-1] - began) / 60


@pytest.mark.parametrize(
    "call",
    [
        {"tokens": 500, "max_tokens": 100},
        # Where the provider counts texts.
        {"tokens": 1, "requests": 50, "max_requests": 20},
    ],
)
def test_a_call_above_the_whole_limit_goes_alone(limits, call):
    assert [limits.take("openai", costs(**call)) for _ in range(2)] == [0, WINDOW_S]


def test_texts_leave_a_tenth_of_the_limit_to_questions(limits):
    moves = costs(tokens=1, max_requests=60)

    assert [limits.take("a", moves, max_wait_s=math.inf) for _ in range(55)][-1] == pytest.approx(WINDOW_S)


def test_a_cooldown_keeps_all_callers_waiting_and_is_never_cut_short(limits, clock):
    limits.cool_down("openai", 60)
    limits.cool_down("openai", 1)
    clock.advance(4)

    assert [limits.take("openai", moves) for moves in ({}, CALL)] == [56, 56]
    assert (limits.take("openai", {}), limits.take("voyage", {})) == (56, 0)
    assert limits.take("voyage", CALL) == 0
    clock.advance(56)
    assert limits.take("openai", CALL) == 0


def test_a_cooldown_ends_when_an_operator_says_so(limits):
    limits.cool_down("openai", 60)
    limits.cool_down("voyage", 60)

    limits.end_cooldown("openai")

    assert (limits.take("openai", {}), limits.take("voyage", {})) == (0, 60)
