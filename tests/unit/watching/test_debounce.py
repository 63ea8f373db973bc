"""Waiting for quiet, within bounds; time is told, never waited for."""

import pytest

from memline.producers.watching.watcher import Debounce


def test_a_name_is_due_after_the_quiet_time_and_only_once():
    debounce = Debounce(1.5)
    debounce.add("a.md", 10.0)

    assert debounce.pop_due(11.4) == set()
    assert debounce.due_at() == 11.5
    assert debounce.pop_due(11.5) == {"a.md"}
    assert debounce.pop_due(20.0) == set()
    assert debounce.due_at() is None


#: What happens: the quiet time, who is saved when, and who is due when.
SAVES: dict[str, tuple[float, list[tuple[str, float]], dict[float, set[str]]]] = {
    "another save starts the quiet time again": (
        1.5,
        [("a.md", 10.0), ("a.md", 11.0)],
        {12.0: set(), 12.5: {"a.md"}},
    ),
    "a busy file does not delay a quiet one": (
        1.0,
        [("quiet.md", 0.0), *(("busy.md", tick / 10) for tick in range(10))],
        {1.0: {"quiet.md"}},
    ),
    "names that change within a moment are due together": (
        1.0,
        [(f"{number}.md", number / 1000) for number in range(50)],
        {1.0: {f"{number}.md" for number in range(50)}},
    ),
    "without a quiet time a name is due at once": (0.0, [("a.md", 3.0)], {3.0: {"a.md"}}),
    "a name that is added later waits its quiet time": (1.0, [("a.md", 5.0)], {5.9: set(), 6.0: {"a.md"}}),
}


@pytest.mark.parametrize(("quiet_s", "saves", "due"), SAVES.values(), ids=SAVES)
def test_what_was_saved_is_due_when_it_was_quiet(quiet_s, saves, due):
    debounce = Debounce(quiet_s)
    for name, at in saves:
        debounce.add(name, at)

    assert {at: debounce.pop_due(at) for at in due} == due


def test_a_file_that_is_saved_all_the_time_is_acted_upon_at_the_ceiling():
    debounce = Debounce(1.0)
    times = []
    for tick in range(200):
        now = tick / 10
        debounce.add("log.md", now)
        if debounce.pop_due(now):
            times.append(now)

    assert times[0] == 5.0
    assert len(times) == 3
