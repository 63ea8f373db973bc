"""Files are followed while the queue is down, or while the workers refuse what is enqueued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memline.producers.runs import feed as feed_module
from memline.producers.watching import follow as follow_module
from memline.producers.watching.follow import Follower
from memline.shared.clock import ManualClock
from memline.shared.errors import QueueError
from tests.support.workspace import Place


class Queue:
    """Records what is enqueued; down when a test says so."""

    def __init__(self) -> None:
        self.is_down = False
        self.enqueued: list[list[str]] = []
        #: Those of them that were enqueued as a backfill.
        self.backfill: list[list[str]] = []

    def __call__(self, agent: str, paths: Sequence[str], *, asked_ns: int = 0, **_: Any) -> None:
        if self.is_down:
            raise QueueError("Redis cannot be reached", hint="redis-server")
        self.enqueued.append(sorted(paths))
        if asked_ns:
            self.backfill.append(sorted(paths))


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    monkeypatch.setattr(follow_module, "enqueue_files", queue)
    monkeypatch.setattr(feed_module, "enqueue_files", queue)
    return queue


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(folder=tmp_path / "user")
    place.configure(sync={"watch": False, "intervalMinutes": 1})
    place.write("MEMORY.md", "# Notes\n")
    return place


def test_what_could_not_be_enqueued_is_enqueued_when_the_queue_is_back(
    place: Place, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    queue.is_down = True

    with Follower([place.agent], clock=clock) as follow:
        for _ in range(5):
            clock.advance(follow_module.QUEUE_RETRY_S)
            follow.tick()
        queue.is_down = False
        clock.advance(follow_module.QUEUE_RETRY_S)
        follow.tick()

    assert queue.enqueued == queue.backfill == [["MEMORY.md"]]
    assert [record.message for record in caplog.records].count("queue.unavailable") == 1


def test_files_that_never_arrive_are_enqueued_less_and_less_often(place: Place, queue: Queue) -> None:
    clock = ManualClock()

    with Follower([place.agent], clock=clock) as follow:
        for _ in range(24 * 3600 // 30):
            clock.advance(30)
            follow.tick()

    # Once a minute it would be 1,440 times.
    assert 20 <= len(queue.enqueued) <= 40


def test_what_the_first_look_finds_is_a_backfill_and_what_is_saved_later_is_not(
    place: Place, queue: Queue
) -> None:
    clock = ManualClock()

    with Follower([place.agent], clock=clock) as follow:
        place.run("index")
        follow.tick()
        place.write("memory/saved.md", "# Saved\n")
        clock.advance(follow_module.SCAN_EVERY_S)
        follow.tick()

    assert queue.backfill == [["MEMORY.md"]]
    assert queue.enqueued[-1] == ["memory/saved.md"]


def test_a_start_that_finds_nothing_new_ends_the_first_look(place: Place, queue: Queue) -> None:
    clock = ManualClock()
    place.run("index")
    queue.backfill.clear()

    with Follower([place.agent], clock=clock) as follow:
        place.write("memory/saved.md", "# Saved\n")
        clock.advance(follow_module.SCAN_EVERY_S)
        follow.tick()

    assert queue.enqueued[-1] == ["memory/saved.md"]
    assert queue.backfill == []
