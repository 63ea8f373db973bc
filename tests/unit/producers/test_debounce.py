"""Waiting for quiet, within bounds; time is told, never waited for."""

from __future__ import annotations

from producers.debounce import Debounce


def test_a_name_is_due_after_the_quiet_time_and_only_once() -> None:
    debounce = Debounce(1.5)
    debounce.notice("a.md", 10.0)

    assert debounce.take(11.4) == set()
    assert debounce.due_at() == 11.5
    assert debounce.take(11.5) == {"a.md"}
    assert debounce.take(20.0) == set()
    assert debounce.due_at() is None


def test_another_save_starts_the_quiet_time_again() -> None:
    debounce = Debounce(1.5)
    debounce.notice("a.md", 10.0)
    debounce.notice("a.md", 11.0)

    assert debounce.take(12.0) == set()
    assert debounce.take(12.5) == {"a.md"}


def test_a_hundred_saves_in_a_second_are_acted_upon_once() -> None:
    debounce = Debounce(1.5)
    acted = 0
    for tick in range(400):
        if tick < 100:
            debounce.notice("a.md", tick / 100)
        acted += len(debounce.take(tick / 100))

    assert acted == 1


def test_a_file_that_is_saved_all_the_time_is_acted_upon_at_the_ceiling() -> None:
    debounce = Debounce(1.0)
    times = []
    for tick in range(200):
        now = tick / 10
        debounce.notice("log.md", now)
        if debounce.take(now):
            times.append(now)

    assert times[0] == 5.0
    assert len(times) == 3


def test_a_busy_file_does_not_delay_a_quiet_one() -> None:
    debounce = Debounce(1.0)
    debounce.notice("quiet.md", 0.0)
    for tick in range(10):
        debounce.notice("busy.md", tick / 10)

    assert debounce.take(1.0) == {"quiet.md"}


def test_names_noticed_within_a_moment_go_together() -> None:
    debounce = Debounce(1.0)
    for number in range(50):
        debounce.notice(f"{number}.md", number / 1000)

    assert len(debounce.take(1.0)) == 50


def test_without_a_quiet_time_a_name_is_due_at_once() -> None:
    debounce = Debounce(0.0)
    debounce.notice("a.md", 3.0)

    assert debounce.take(3.0) == {"a.md"}


def test_what_could_not_be_acted_upon_waits_once_more() -> None:
    debounce = Debounce(1.0)

    debounce.put_back({"a.md"}, 5.0)

    assert debounce.take(5.9) == set()
    assert debounce.take(6.0) == {"a.md"}
