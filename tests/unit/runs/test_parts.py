import threading

import pytest

from memline.producers.runs import parts
from memline.producers.runs.parts import run


class Recorded:
    """A part that notes what is done with it."""

    def __init__(self, name, notes, on_tick=lambda: None):
        self.name, self.notes, self.on_tick = name, notes, on_tick

    def __enter__(self):
        self.notes.append(f"start {self.name}")

    def __exit__(self, *_):
        self.notes.append(f"stop {self.name}")

    def tick(self):
        self.notes.append(f"tick {self.name}")
        self.on_tick()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(parts, "TICK_S", 0.001)


def test_parts_start_in_order_and_what_makes_work_stops_first():
    notes, stop = [], threading.Event()

    run([Recorded("workers", notes), Recorded("watcher", notes, stop.set)], stop)

    assert notes == [
        "start workers", "start watcher", "tick workers", "tick watcher", "stop watcher", "stop workers",
    ]  # fmt: skip


def test_an_error_of_one_part_stops_the_others():
    notes = []

    def fail():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run([Recorded("a", notes), Recorded("b", notes, fail)], threading.Event())

    assert notes[-2:] == ["stop b", "stop a"]
