"""A clock that was ahead and is set right holds no text back: what it wrote lies ahead of the present."""

from contextlib import closing

import pytest

from memline.shared.clock import MAX_AHEAD_S, ManualClock
from memline.shared.index.vectors import FAILED_RETRY_S
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health
from memline.shared.scheduling.limits import FileLimits
from memline.shared.values import replace
from tests.support.index_rows import CAPS, MODEL_A, answer, backlog, fail, lease_all

CAPS_OF_ONE = replace(CAPS, max_rows=1)
DAY_S = 86_400.0


def set_ahead(clock: ManualClock) -> None:
    clock.set_back(-DAY_S)


def set_right(clock: ManualClock) -> None:
    clock.set_back(DAY_S)


@pytest.mark.parametrize(("kind", "named_s"), [("later", 5), ("broken", None), ("refused", None)])
def test_a_text_that_was_put_off_is_sent(
    wanting: IndexWriter, clock: ManualClock, kind: str, named_s: float | None
) -> None:
    set_ahead(clock)
    fail(wanting, lease_all(wanting)[0], kind, retry_after_s=named_s)
    set_right(clock)
    assert lease_all(wanting) == []

    wanting.sweep()

    assert len(lease_all(wanting)) == 1


def test_a_breaker_that_opened_is_asked_again(wanting: IndexWriter, clock: ManualClock) -> None:
    set_ahead(clock)
    fail(wanting, lease_all(wanting)[0], "stop")
    set_right(clock)

    wanting.sweep()

    assert [request.is_probe for request in lease_all(wanting)] == [True]


def test_an_answer_that_comes_before_the_next_sweep_hides_no_such_wait(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    set_ahead(clock)
    one, two = wanting.lease(CAPS_OF_ONE, credits=2, only_full=False)
    fail(wanting, one, "later")
    set_right(clock)
    answer(wanting, [two])

    wanting.sweep()

    assert len(lease_all(wanting)) == 1


def test_a_cooldown_of_the_home_ends_with_it(wanting: IndexWriter, clock: ManualClock) -> None:
    account = wanting.accounts.of("openai")
    set_ahead(clock)
    with closing(FileLimits(wanting.accounts.file, clock)) as limits:
        limits.cool_down(account, 5)
        fail(wanting, lease_all(wanting)[0], "later", retry_after_s=5)
        set_right(clock)
        wanting.sweep()

        assert limits.cooldown_s(account) == 0


def test_a_wait_that_a_clock_which_is_right_began_holds(wanting: IndexWriter, clock: ManualClock) -> None:
    fail(wanting, lease_all(wanting)[0], "refused")
    clock.advance(FAILED_RETRY_S - 1)
    wanting.sweep()
    assert backlog(wanting).failed == 2
    clock.advance(2)
    wanting.sweep()
    fail(wanting, lease_all(wanting)[0], "later", retry_after_s=5 * DAY_S)

    clock.set_back(MAX_AHEAD_S)
    wanting.sweep()

    assert lease_all(wanting) == []
    assert health.read(wanting.accounts, MODEL_A.provider).retry_at > clock.now() + 5 * DAY_S
