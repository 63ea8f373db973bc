import multiprocessing
import os
import random
import signal
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from memline.shared.clock import ManualClock
from memline.shared.index.accounts import AccountFile
from memline.shared.scheduling.limits import STOP_COOLDOWN_S, WINDOW_S, FileLimits, for_texts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "accounts.sqlite"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limits(path: Path, clock: ManualClock) -> Iterator[FileLimits]:
    with closing(FileLimits(AccountFile(path), clock)) as limits:
        yield limits


def test_without_limits_everything_goes_at_once(limits: FileLimits) -> None:
    assert [limits.take("openai", tokens=10**6) for _ in range(100)] == [0.0] * 100


@pytest.mark.parametrize("late_s", [0.0, 2.0])
def test_no_minute_holds_more_requests_than_allowed_as_they_reach_the_provider(
    limits: FileLimits, clock: ManualClock, late_s: float
) -> None:
    source = random.Random(5)
    came: list[float] = []

    for _ in range(1_000):
        if limits.take("openai", tokens=1, max_requests=7) == 0:
            came.append(clock.now() + source.choice([0.0, late_s]))
        clock.advance(0.37)

    assert len(came) > 40
    assert all(sum(begin <= at < begin + 60 for at in came) <= 7 for begin in came)


def test_the_wait_is_as_long_as_it_takes_and_no_longer(limits: FileLimits, clock: ManualClock) -> None:
    limits.take("openai", tokens=60, max_tokens=100)
    clock.advance(10)
    limits.take("openai", tokens=40, max_tokens=100)
    clock.advance(5)

    wait_s = limits.take("openai", tokens=50, max_tokens=100)
    clock.advance(wait_s)

    assert wait_s == WINDOW_S - 15
    assert limits.take("openai", tokens=50, max_tokens=100) == 0


def test_where_texts_are_counted_no_minute_holds_more_texts_than_allowed(
    limits: FileLimits, clock: ManualClock
) -> None:
    source = random.Random(3)
    went: list[tuple[float, int]] = []

    for _ in range(1_000):
        texts = source.randint(1, 5)
        if limits.take("gemini", tokens=1, requests=texts, max_requests=20) == 0:
            went.append((clock.now(), texts))
        clock.advance(source.random())

    assert len(went) > 40
    assert all(sum(texts for at, texts in went if begin <= at < begin + 60) <= 20 for begin, _ in went)


def test_a_request_above_the_whole_budget_goes_alone(limits: FileLimits, clock: ManualClock) -> None:

    assert limits.take("openai", tokens=500, max_tokens=100) == 0
    assert limits.take("openai", tokens=1, max_tokens=100) == WINDOW_S
    assert limits.take("gemini", tokens=1, requests=50, max_requests=20) == 0
    assert limits.take("gemini", tokens=1, max_requests=20) == WINDOW_S


def test_places_are_given_ahead_in_order_to_those_who_wait_for_them(
    limits: FileLimits, clock: ManualClock
) -> None:

    def take(max_wait_s: float) -> float:
        return limits.take("openai", tokens=1, max_requests=2, max_wait_s=max_wait_s)

    assert [take(0), take(0)] == [0, 0]
    clock.advance(60)
    waits = [take(1), take(5), take(5), take(100)]

    # The first would not wait and got none; the next two have the places of the first two.
    assert waits == [2, 2, 2, 64]
    clock.advance(2)
    assert take(0) == WINDOW_S


def test_no_minute_holds_more_tokens_than_allowed_whatever_the_sizes_and_the_waits(
    limits: FileLimits, clock: ManualClock
) -> None:
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


def test_a_cooldown_is_told(limits: FileLimits, clock: ManualClock) -> None:
    limits.cool_down("openai", 10)
    clock.advance(4)

    assert (limits.cooldown_s("openai"), limits.cooldown_s("voyage")) == (6, 0)


def test_a_cooldown_ends_when_an_operator_says_so(limits: FileLimits) -> None:
    for account in ("openai", "voyage"):
        limits.cool_down(account, 60)

    limits.end_cooldown("openai")

    assert (limits.cooldown_s("openai"), limits.take("openai", tokens=1)) == (0, 0)
    assert limits.take("voyage", tokens=1) == 60


def test_a_cooldown_after_a_definite_no_is_ended_by_time_alone(limits: FileLimits) -> None:
    limits.cool_down("openai", STOP_COOLDOWN_S)

    limits.end_cooldown("openai")

    assert limits.cooldown_s("openai") == STOP_COOLDOWN_S


def test_a_cooldown_keeps_all_callers_waiting_and_is_never_cut_short(
    limits: FileLimits, clock: ManualClock
) -> None:
    limits.cool_down("openai", 60)
    limits.cool_down("openai", 1)

    assert limits.take("openai", tokens=1) == 60
    assert limits.take("voyage", tokens=1) == 0
    clock.advance(60)
    assert limits.take("openai", tokens=1) == 0


def test_a_clock_that_was_set_back_keeps_no_text_waiting(limits: FileLimits, clock: ManualClock) -> None:
    limits.take("openai", tokens=1)
    clock.advance(-3_600)

    assert limits.take("openai", tokens=1, max_requests=10) == 0


def test_two_processes_share_a_minute_also_when_one_of_them_is_killed(path: Path, clock: ManualClock) -> None:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=take_for_ever, args=(path, clock, 40)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()

    with closing(FileLimits(AccountFile(path), clock)) as limits:
        assert limits.take("openai:1", tokens=1, max_requests=20) == WINDOW_S
        assert limits.take("openai:2", tokens=1, max_requests=20) == 0
    assert [child.exitcode for child in children] == [-9, -9]
    with closing(AccountFile(path)) as file, file.reading() as reader:
        assert reader is not None
        (taken,) = reader.execute("SELECT count(*) FROM places WHERE account = 'openai:1'").fetchone()
    assert taken == for_texts(20)


def take_for_ever(path: Path, clock: ManualClock, times: int) -> None:
    """Take places in a process that is killed in the middle of a transaction."""
    file = AccountFile(path)
    limits = FileLimits(file, clock)
    for _ in range(times):
        limits.take("openai:1", tokens=1, max_requests=20)
    with file.writing() as connection:
        connection.execute("INSERT INTO places VALUES ('openai:1', ?, 1, 1)", (clock.now(),))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_question_counts_and_never_waits(limits: FileLimits, clock: ManualClock) -> None:
    def take(*, is_question: bool = False, max_wait_s: float = 0.0) -> float:
        return limits.take("a", tokens=1, max_requests=10, max_wait_s=max_wait_s, is_question=is_question)

    texts = [take() for _ in range(9)]
    refused = take()
    ahead = take(max_wait_s=100)
    question = take(is_question=True)

    # The tenth place of the minute is left for questions, and a text that has one ahead takes it.
    assert (texts, refused, ahead) == ([0] * 9, WINDOW_S, WINDOW_S)
    assert question > 0
    clock.advance(WINDOW_S)
    assert take(is_question=True) == 0


def test_a_question_takes_the_place_that_texts_leave_and_texts_count_it(
    limits: FileLimits, clock: ManualClock
) -> None:
    for _ in range(9):
        limits.take("a", tokens=10, max_requests=10, max_tokens=100)

    answered = limits.take("a", tokens=10, max_requests=10, max_tokens=100, is_question=True)
    second = limits.take("a", tokens=10, max_requests=10, max_tokens=100, is_question=True)

    assert (answered, second) == (0, WINDOW_S)
    clock.advance(WINDOW_S / 2)
    assert limits.take("a", tokens=1, max_requests=10) == WINDOW_S / 2


def test_of_processes_that_find_the_file_damaged_one_moves_it_and_no_count_is_lost(
    path: Path, clock: ManualClock
) -> None:
    context = multiprocessing.get_context("fork")
    for _ in range(10):
        path.write_bytes(b"no database at all " * 400)
        together = context.Barrier(4)
        children = [context.Process(target=take_once, args=(path, clock, together)) for _ in range(4)]
        for child in children:
            child.start()
        for child in children:
            child.join()

        assert [child.exitcode for child in children] == [0] * 4
        with closing(AccountFile(path)) as file, file.reading() as reader:
            assert reader is not None
            assert reader.execute("SELECT count(*) FROM places").fetchone() == (4,)
        for left in path.parent.iterdir():
            left.unlink()


def take_once(path: Path, clock: ManualClock, together: Barrier) -> None:
    together.wait()
    with closing(FileLimits(AccountFile(path), clock)) as limits:
        limits.take("openai", tokens=1)
