from __future__ import annotations

import threading

import pytest

from producers.ask import DiskState
from producers.freshness import LONGEST_S, SHARE, Freshness
from shared.clock import ManualClock
from shared.errors import IndexCorrupt


class Looks:
    """Looks that take `took_s`, and are counted."""

    def __init__(self, took_s: float) -> None:
        self.clock = ManualClock()
        self.took_s = took_s
        self.count = 0
        self.freshness = Freshness(self.look, monotonic=self.clock.now)

    def look(self) -> DiskState:
        self.count += 1
        # Storing what changed takes longer than finding it.
        self.clock.advance(10 * self.took_s)
        return DiskState(files_behind=self.count, look_s=self.took_s)


def test_the_first_question_looks() -> None:
    looks = Looks(0.01)

    assert looks.freshness.state().files_behind == 1


def test_a_look_is_taken_again_when_the_last_one_has_been_paid_for() -> None:
    looks = Looks(0.01)
    looks.freshness.state()

    looks.clock.advance(0.01 * SHARE - 0.001)
    assert looks.freshness.state().files_behind == 1
    looks.clock.advance(0.002)
    assert looks.freshness.state().files_behind == 2


def test_the_slowest_look_is_taken_again_after_a_few_seconds() -> None:
    looks = Looks(30.0)
    looks.freshness.state()

    looks.clock.advance(LONGEST_S + 0.001)

    assert looks.freshness.state().files_behind == 2


def test_after_a_change_of_our_own_a_look_is_taken_at_once() -> None:
    looks = Looks(0.01)
    looks.freshness.state()

    looks.freshness.look_now()

    assert looks.freshness.state().files_behind == 2


def test_who_finds_another_one_looking_goes_on_with_what_is_known() -> None:
    looks = Looks(0.01)
    looks.freshness.state()
    looks.clock.advance(10)
    is_looking, go_on = threading.Event(), threading.Event()

    def slow_look() -> DiskState:
        is_looking.set()
        go_on.wait(10)
        return DiskState(files_behind=99)

    looks.freshness._look = slow_look
    other = threading.Thread(target=looks.freshness.state)
    other.start()
    is_looking.wait(10)

    assert looks.freshness.state().files_behind == 1
    go_on.set()
    other.join()
    assert looks.freshness.state().files_behind == 99


def test_trouble_of_a_look_is_told_and_the_next_question_looks_again() -> None:
    looks = Looks(0.01)

    def broken() -> DiskState:
        raise IndexCorrupt("damaged")

    looks.freshness._look = broken
    with pytest.raises(IndexCorrupt):
        looks.freshness.state()

    looks.freshness._look = looks.look
    assert looks.freshness.state().files_behind == 1
