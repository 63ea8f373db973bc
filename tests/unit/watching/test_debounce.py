"""Waiting for quiet, within bounds; time is told, never waited for."""

from memline.producers.watching.watcher import Debounce


def test_a_name_is_due_after_the_quiet_time_and_only_once() -> None:
    debounce = Debounce(1.5)
    debounce.add("a.md", 10.0)

    assert debounce.pop_due(11.4) == set()
    assert debounce.due_at() == 11.5
    assert debounce.pop_due(11.5) == {"a.md"}
    assert debounce.pop_due(20.0) == set()
    assert debounce.due_at() is None


def test_another_save_starts_the_quiet_time_again() -> None:
    debounce = Debounce(1.5)
    debounce.add("a.md", 10.0)
    debounce.add("a.md", 11.0)

    assert debounce.pop_due(12.0) == set()
    assert debounce.pop_due(12.5) == {"a.md"}


def test_a_hundred_saves_in_a_second_are_acted_upon_once() -> None:
    debounce = Debounce(1.5)
    acted = 0
    for tick in range(400):
        if tick < 100:
            debounce.add("a.md", tick / 100)
        acted += len(debounce.pop_due(tick / 100))

    assert acted == 1


def test_a_file_that_is_saved_all_the_time_is_acted_upon_at_the_ceiling() -> None:
    debounce = Debounce(1.0)
    times = []
    for tick in range(200):
        now = tick / 10
        debounce.add("log.md", now)
        if debounce.pop_due(now):
            times.append(now)

    assert times[0] == 5.0
    assert len(times) == 3


def test_a_busy_file_does_not_delay_a_quiet_one() -> None:
    debounce = Debounce(1.0)
    debounce.add("quiet.md", 0.0)
    for tick in range(10):
        debounce.add("busy.md", tick / 10)

    assert debounce.pop_due(1.0) == {"quiet.md"}


def test_names_that_change_within_a_moment_are_due_together() -> None:
    debounce = Debounce(1.0)
    for number in range(50):
        debounce.add(f"{number}.md", number / 1000)

    assert len(debounce.pop_due(1.0)) == 50


def test_without_a_quiet_time_a_name_is_due_at_once() -> None:
    debounce = Debounce(0.0)
    debounce.add("a.md", 3.0)

    assert debounce.pop_due(3.0) == {"a.md"}


def test_a_name_that_is_added_later_waits_its_quiet_time() -> None:
    debounce = Debounce(1.0)

    debounce.add("a.md", 5.0)

    assert debounce.pop_due(5.9) == set()
    assert debounce.pop_due(6.0) == {"a.md"}
