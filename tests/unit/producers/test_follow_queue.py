"""Following files while the queue is away, or while the workers refuse what is announced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from producers import feed as feed_module
from producers import follow as follow_module
from producers.feed import Feed
from producers.follow import Follow
from shared.clock import ManualClock
from shared.errors import QueueError
from tests.support.workspace import Place


class Queue:
    """Where announcements go; away when it is told so."""

    def __init__(self) -> None:
        self.is_away = False
        self.announced: list[list[str]] = []

    def __call__(self, agent: str, paths: Sequence[str], **_: Any) -> None:
        if self.is_away:
            raise QueueError("Redis cannot be reached", hint="redis-server")
        self.announced.append(sorted(paths))


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    monkeypatch.setattr(follow_module, "announce", queue)
    monkeypatch.setattr(feed_module, "announce", queue)
    return queue


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(folder=tmp_path / "user")
    place.configure(sync={"watch": False, "intervalMinutes": 1})
    place.write("MEMORY.md", "# Notes\n")
    return place


def test_what_could_not_be_announced_is_announced_when_the_queue_is_back(
    place: Place, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    queue.is_away = True

    with Follow([place.agent], clock=clock) as follow:
        for _ in range(5):
            clock.advance(follow_module.QUEUE_RETRY_S)
            follow.tick()
        queue.is_away = False
        clock.advance(follow_module.QUEUE_RETRY_S)
        follow.tick()

    assert queue.announced == [["MEMORY.md"]]
    assert [record.message for record in caplog.records].count("queue.unavailable") == 1


def test_files_that_never_arrive_are_announced_less_and_less_often(place: Place, queue: Queue) -> None:
    clock = ManualClock()

    with Follow([place.agent], clock=clock) as follow:
        for _ in range(24 * 3600 // 30):
            clock.advance(30)
            follow.tick()

    # Once a minute it would be 1,440 times.
    assert 20 <= len(queue.announced) <= 40


def test_a_feed_announces_again_what_does_not_arrive_later_each_time(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(feed_module.time, "monotonic", clock.now)
    feed = Feed("main", [("a.md", 1)], looked_ns=0)

    times = []
    for second in range(600):
        before = len(queue.announced)
        feed.advance(None)
        times += [second] * (len(queue.announced) - before)
        clock.advance(1)

    assert times == [0, 11, 32, 73, 154, 315]
