import threading
from contextlib import contextmanager

import pytest

from memline.producers.runs import parts
from memline.producers.runs.parts import run


@contextmanager
def recorded(name, notes, on_tick=lambda: None):
    """A part that notes what is done with it."""

    def tick():
        notes.append(f"tick {name}")
        on_tick()

    notes.append(f"start {name}")
    try:
        yield tick
    finally:
        notes.append(f"stop {name}")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(parts, "TICK_S", 0.001)


def test_parts_start_in_order_and_what_makes_work_stops_first():
    notes, stop = [], threading.Event()

    run([recorded("workers", notes), recorded("watcher", notes, stop.set)], stop)

    assert notes == [
        "start workers", "start watcher", "tick workers", "tick watcher", "stop watcher", "stop workers",
    ]  # fmt: skip


def test_an_error_of_one_part_stops_the_others():
    notes = []

    def fail():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run([recorded("a", notes), recorded("b", notes, fail)], threading.Event())

    assert notes[-2:] == ["stop b", "stop a"]
