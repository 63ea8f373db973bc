from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from shared.errors import IndexFault
from shared.search import behind
from shared.search.behind import AHEAD_S, GOOD_FOR_S, FilesBehind
from tests.support.workspace import until


class Looks:
    """Looks that are counted; each gives its number, and may be held up or made to fail."""

    def __init__(self) -> None:
        self.taken = 0
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def __call__(self) -> int:
        self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.taken += 1
        return self.taken


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The monotonic clock of the module; its only element may be moved."""
    clock = [1_000.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return clock[0]

    monkeypatch.setattr(behind, "time", Clock)
    yield clock


def test_a_look_is_good_for_a_while(now: list[float]) -> None:
    looks = Looks()
    files = FilesBehind(looks)

    counts = [files.count(), files.count()]

    assert (counts, looks.taken) == ([1, 1], 1)


def test_whoever_finds_it_too_old_looks_again(now: list[float]) -> None:
    files = FilesBehind(Looks())
    files.count()

    now[0] += GOOD_FOR_S

    assert files.count() == 2


def test_one_that_is_getting_old_is_renewed_while_nobody_waits(now: list[float]) -> None:
    looks = Looks()
    files = FilesBehind(looks)
    files.count()
    looks.gate.clear()
    now[0] += AHEAD_S

    assert [files.count(), files.count()] == [1, 1]
    looks.gate.set()

    until(lambda: files.count() == 2, "the second look")
    assert looks.taken == 2


def test_a_look_ahead_that_fails_is_told_by_the_next_that_must_look(now: list[float]) -> None:
    looks = Looks()
    files = FilesBehind(looks)
    files.count()
    looks.error = IndexFault("the disk is gone")
    now[0] += AHEAD_S
    assert files.count() == 1

    now[0] += GOOD_FOR_S
    with pytest.raises(IndexFault):
        files.count()

    looks.error = None
    assert files.count() == 2
