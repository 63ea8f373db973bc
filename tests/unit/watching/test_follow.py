"""Files are followed while the queue is down, or while the workers refuse what is enqueued."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from watchdog import events

from memline.producers.runs import feed as feed_module
from memline.producers.watching import follow as follow_module
from memline.producers.watching import watcher as watcher_module
from memline.producers.watching.follow import Follower
from memline.shared.clock import ManualClock
from memline.shared.errors import QueueError
from memline.shared.sync import freshness
from memline.shared.sync.freshness import is_fresh
from tests.support.workspace import Place, paths, until


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


class Observer:
    """Watches nothing: a test tells of the events itself, and needs no watch of the system."""

    emitters: frozenset[object] = frozenset()

    def is_alive(self) -> bool:
        return True

    def stop(self) -> None:
        pass

    def join(self) -> None:
        pass


def save(place: Place, follow: Follower, path: str, text: str) -> None:
    """Write a note, of which the observer of the workspace tells."""
    event = events.FileModifiedEvent(str(place.write(path, text)))
    follow._agents[0].watchers[0].on_any_event(event)


@pytest.fixture
def watched(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place whose notes are indexed and watched, on a disk of this host; no machine is too slow for it."""
    monkeypatch.setattr(freshness, "MAX_AGE_S", 600.0)
    monkeypatch.setattr(watcher_module, "are_local", lambda _: True)
    monkeypatch.setattr(watcher_module, "_start_observer", lambda *_: Observer())
    place.configure(sync={"watch": True, "watchDebounceMs": 10})
    # Stores what there is; the queue of these tests leads nowhere.
    place.search("notes")
    return place


@pytest.mark.usefixtures("queue")
def test_searches_need_not_look_from_a_scan_that_finds_nothing_until_a_file_changes(watched: Place) -> None:
    clock = ManualClock(time.time())
    with Follower([watched.agent], clock=clock) as follow:

        def is_given() -> bool:
            # Stores what a scan has found, also a file that was too young to be sure of.
            watched.search("notes")
            clock.advance(follow_module.MAX_SCAN_EVERY_S)
            follow.tick()
            follow.tick()
            return is_fresh(watched.agent, clock=clock)

        until(is_given, "the word is given")

        save(watched, follow, "memory/new.md", "plugh\n")

        assert not is_fresh(watched.agent, clock=clock)
        assert paths(watched.search("plugh")) == ["memory/new.md"]
        until(is_given, "the word is given again")
    assert not is_fresh(watched.agent, clock=clock)


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("reason", ["not local", "polling", "not watched"])
def test_a_process_that_may_miss_a_change_gives_no_word(
    watched: Place, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "not local":
        monkeypatch.setattr(watcher_module, "are_local", lambda _: False)
    elif reason == "polling":
        monkeypatch.setattr(watcher_module, "_start_observer", no_more_watches)
    else:
        watched.configure(sync={"watch": False, "intervalMinutes": 1})

    with Follower([watched.agent]) as follow:
        follow.tick()
        assert not is_fresh(watched.agent)


def no_more_watches(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no more watches")
