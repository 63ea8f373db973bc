import threading

import pytest

from memline.shared.errors import IndexCorrupt
from memline.shared.sync.staleness import CHEAP_S, SHARE, DiskState, Staleness
from tests.support.clock import ManualClock


class Looks:
    """Looks that take `took_s`, and are counted."""

    def __init__(self, took_s, act=lambda: None):
        self.clock = ManualClock()
        self.took_s, self.act, self.count = took_s, act, 0
        self.staleness = Staleness(self.look, monotonic=self.clock.now)

    def look(self):
        self.act()
        self.count += 1
        # Storing what changed takes longer than finding it.
        self.clock.advance(10 * self.took_s)
        return DiskState(files_behind=self.count, look_s=self.took_s)


def test_a_look_is_taken_again_when_the_last_one_has_been_paid_for():
    looks = Looks(0.02)
    looks.staleness.state()
    looks.staleness.state()

    looks.clock.advance(0.02 * SHARE - 0.001)
    assert looks.staleness.state().files_behind == 2
    looks.clock.advance(0.002)
    assert looks.staleness.state().files_behind == 3


def test_a_cheap_look_is_taken_by_every_question():
    looks = Looks(CHEAP_S)
    looks.staleness.state()

    assert looks.staleness.state().files_behind == 2


def test_a_caller_that_finds_another_thread_looking_takes_the_last_state():
    looks = Looks(0.02)
    looks.staleness.state()
    looks.clock.advance(10)
    is_looking, go_on = threading.Event(), threading.Event()

    def wait():
        is_looking.set()
        go_on.wait(120)

    looks.act = wait
    other = threading.Thread(target=looks.staleness.state)
    other.start()
    is_looking.wait(120)

    assert looks.staleness.state().files_behind == 1
    go_on.set()
    other.join()
    assert looks.staleness.state().files_behind == 2


def test_an_error_of_a_look_is_raised_and_the_next_question_looks_again():
    def broken():
        raise IndexCorrupt("damaged")

    looks = Looks(0.02, broken)
    with pytest.raises(IndexCorrupt):
        looks.staleness.state()

    looks.act = lambda: None
    assert looks.staleness.state().files_behind == 1
