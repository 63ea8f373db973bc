import threading

import pytest

from memline.shared.clock import ManualClock
from memline.shared.errors import IndexCorrupt, IndexFault
from memline.shared.sync.staleness import (
    BACKGROUND_AFTER_S,
    BACKGROUND_LONGEST_S,
    LONGEST_S,
    SHARE,
    DiskState,
    Staleness,
)
from tests.support.workspace import until


class Looks:
    """Looks that take `took_s`, and are counted."""

    def __init__(self, took_s: float) -> None:
        self.clock = ManualClock()
        self.took_s = took_s
        self.count = 0
        #: Files that each finds behind; None: as many as there were looks.
        self.behind: int | None = None
        self.staleness = Staleness(self.look, monotonic=self.clock.now)

    def look(self) -> DiskState:
        self.count += 1
        # Storing what changed takes longer than finding it.
        self.clock.advance(10 * self.took_s)
        behind = self.count if self.behind is None else self.behind
        return DiskState(files_behind=behind, look_s=self.took_s)


def test_nobody_looks_while_a_process_says_that_nothing_is_behind() -> None:
    words = [True, True, False]
    looks = Looks(0.01)
    looks.staleness = Staleness(looks.look, is_fresh=lambda: words.pop(0), monotonic=looks.clock.now)

    for _ in range(2):
        assert looks.staleness.state() == DiskState()
        looks.clock.advance(LONGEST_S)
    assert looks.count == 0
    assert looks.staleness.state().files_behind == 1


def test_a_process_that_changed_a_file_itself_looks_whatever_another_one_says() -> None:
    looks = Looks(0.01)
    looks.staleness = Staleness(looks.look, is_fresh=lambda: True, monotonic=looks.clock.now)

    assert looks.staleness.look_now().files_behind == 1


def test_the_first_question_looks() -> None:
    looks = Looks(0.01)

    assert looks.staleness.state().files_behind == 1


def test_an_answer_says_how_old_the_look_is() -> None:
    looks = Looks(0.1)
    looks.staleness.state()

    looks.clock.advance(1.5)

    assert (looks.staleness.state().age_s, looks.count) == (1.5, 1)


def test_a_look_is_of_now_while_the_system_tells_of_no_save() -> None:
    class Quiet:
        def watch(self) -> None: ...

        def has_news(self, *, is_settled: bool) -> bool:
            return False

    looks = Looks(0.1)
    looks.staleness = Staleness(looks.look, news=Quiet(), monotonic=looks.clock.now)
    looks.staleness.state()

    looks.clock.advance(1.5)

    assert (looks.staleness.state().age_s, looks.count) == (0.0, 1)


def test_a_look_is_taken_again_when_the_last_one_has_been_paid_for() -> None:
    looks = Looks(0.01)
    looks.staleness.state()

    looks.clock.advance(0.01 * SHARE - 0.001)
    assert looks.staleness.state().files_behind == 1
    looks.clock.advance(0.002)
    assert looks.staleness.state().files_behind == 2


def test_the_slowest_look_is_taken_again_after_a_few_seconds() -> None:
    looks = Looks(30.0)
    looks.staleness.state()

    looks.clock.advance(LONGEST_S + 0.001)

    assert looks.staleness.state().files_behind == 2


def test_after_a_change_of_our_own_a_look_is_taken_at_once() -> None:
    looks = Looks(0.01)
    looks.staleness.state()

    looks.staleness.look_now()

    assert looks.staleness.state().files_behind == 2


def test_a_caller_that_finds_another_thread_looking_takes_the_last_state() -> None:
    looks = Looks(0.01)
    looks.staleness.state()
    looks.clock.advance(10)
    is_looking, go_on = threading.Event(), threading.Event()

    def slow_look() -> DiskState:
        is_looking.set()
        go_on.wait(120)
        return DiskState(files_behind=99)

    looks.staleness._look = slow_look
    other = threading.Thread(target=looks.staleness.state)
    other.start()
    is_looking.wait(120)

    assert looks.staleness.state().files_behind == 1
    go_on.set()
    other.join()
    assert looks.staleness.state().files_behind == 99


def test_an_error_of_a_look_is_raised_and_the_next_question_looks_again() -> None:
    looks = Looks(0.01)

    def broken() -> DiskState:
        raise IndexCorrupt("damaged")

    looks.staleness._look = broken
    with pytest.raises(IndexCorrupt):
        looks.staleness.state()

    looks.staleness._look = looks.look
    assert looks.staleness.state().files_behind == 1


class BackgroundLooks:
    """Looks in the background that are counted; each may be delayed or made to fail."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()
        self.error: IndexFault | None = None
        self.staleness = Staleness(self.look, background=True, monotonic=self.clock.now)

    def look(self) -> DiskState:
        self.gate.wait(120)
        if self.error is not None:
            raise self.error
        self.count += 1
        return DiskState(files_behind=self.count)

    def files_behind(self) -> int:
        return self.staleness.state().files_behind


def test_in_the_background_a_look_is_good_for_a_while() -> None:
    looks = BackgroundLooks()

    assert [looks.files_behind(), looks.files_behind()] == [1, 1]
    assert looks.count == 1


def test_a_search_that_finds_the_look_too_old_looks_itself() -> None:
    looks = BackgroundLooks()
    looks.files_behind()

    looks.clock.advance(BACKGROUND_LONGEST_S)

    assert looks.files_behind() == 2


def test_a_look_that_is_getting_old_is_renewed_while_no_search_waits() -> None:
    looks = BackgroundLooks()
    looks.files_behind()
    looks.gate.clear()
    looks.clock.advance(BACKGROUND_AFTER_S)

    assert [looks.files_behind(), looks.files_behind()] == [1, 1]
    looks.gate.set()

    until(lambda: looks.files_behind() == 2, "the second look")
    assert looks.count == 2


def test_a_failed_look_in_the_background_is_raised_by_the_next_search_that_looks() -> None:
    looks = BackgroundLooks()
    looks.files_behind()
    looks.error = IndexFault("the disk is gone")
    looks.clock.advance(BACKGROUND_AFTER_S)
    assert looks.files_behind() == 1

    until(lambda: not looks.staleness._looking.locked(), "the end of the failed look")
    looks.clock.advance(BACKGROUND_LONGEST_S)
    with pytest.raises(IndexFault):
        looks.files_behind()

    looks.error = None
    assert looks.files_behind() == 2


class Told:
    """News that the test decides."""

    def __init__(self, *news: bool | None) -> None:
        self.news = list(news)
        self.watched = 0
        self.settled: list[bool] = []

    def watch(self) -> None:
        self.watched += 1

    def has_news(self, *, is_settled: bool) -> bool | None:
        self.settled.append(is_settled)
        return self.news.pop(0)


def test_a_save_is_looked_at_by_the_next_search_however_short_the_last_look_is_past() -> None:
    looks = Looks(1.0)
    told = Told(True, False, True)
    looks.staleness = Staleness(looks.look, news=told, is_fresh=lambda: True, monotonic=looks.clock.now)

    assert [looks.staleness.state().files_behind for _ in range(3)] == [1, 1, 2]
    assert told.watched == 2


def test_where_nothing_tells_of_saves_a_search_looks_or_says_that_it_is_unsure() -> None:
    cheap, dear = Looks(0.001), Looks(1.0)
    for looks in (cheap, dear):
        looks.staleness = Staleness(looks.look, news=Told(None, None, None), monotonic=looks.clock.now)
        for _ in range(3):
            looks.staleness.state()

    assert cheap.count == 3 and dear.count == 1
    dear.staleness = Staleness(dear.look, news=Told(None, None), monotonic=dear.clock.now)
    assert [dear.staleness.state().is_unsure for _ in range(2)] == [False, True]


def test_a_search_after_a_look_that_failed_looks_at_what_was_saved() -> None:
    states = [DiskState(), None, DiskState(files_behind=1)]

    def look() -> DiskState:
        if (state := states.pop(0)) is None:
            raise IndexFault("too many open files")
        return state

    staleness = Staleness(look, news=Told(True, True, False), hears_all=True)
    staleness.state()
    with pytest.raises(IndexFault):
        staleness.state()

    assert staleness.state().files_behind == 1


def test_news_are_told_whether_anything_was_behind_at_the_last_look() -> None:
    states = [DiskState(), DiskState(files_behind=1), DiskState(kept={"memory/a.md": ("memory", 1.0)})]
    told = Told(True, True, True, True)
    staleness = Staleness(lambda: states.pop(0) if states else DiskState(), news=told)

    for _ in range(4):
        staleness.state()

    assert told.settled == [False, True, False, False]


def test_where_all_files_are_heard_of_a_quiet_one_is_looked_at_once_in_a_few_seconds() -> None:
    for hears_all, behind, later, count in (
        (False, 0, 1.5, 2),
        (True, 0, 1.5, 1),
        (True, 0, LONGEST_S + 0.1, 2),
        # Not stored at once, because another process wrote, or because they were many.
        (True, 1, 1.5, 2),
    ):
        looks = Looks(0.01)
        looks.behind = behind
        told = Told(False, False)
        looks.staleness = Staleness(looks.look, news=told, hears_all=hears_all, monotonic=looks.clock.now)
        looks.staleness.state()
        looks.clock.advance(later)
        looks.staleness.state()

        assert looks.count == count, (hears_all, behind, later)
