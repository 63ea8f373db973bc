import threading
from contextlib import contextmanager, nullcontext

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


def fail():
    raise ValueError("broken")


@pytest.mark.parametrize("is_broken", [False, True])
def test_parts_start_in_order_and_what_makes_work_stops_first(is_broken):
    notes, stop = [], threading.Event()
    parts = [recorded("workers", notes), recorded("watcher", notes, fail if is_broken else stop.set)]

    with pytest.raises(ValueError, match="broken") if is_broken else nullcontext():
        run(parts, stop)

    assert notes == [
        "start workers", "start watcher", "tick workers", "tick watcher", "stop watcher", "stop workers",
    ]  # fmt: skip
