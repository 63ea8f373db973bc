"""Files are followed while the queue is down, or while the workers refuse what is enqueued."""

import errno
import time
from collections.abc import Sequence
from typing import Any

import pytest
from watchdog import events

from memline.producers.watching import follow as follow_module
from memline.producers.watching import watcher as watcher_module
from memline.producers.watching.follow import Follower
from memline.shared.clock import ManualClock
from memline.shared.errors import QueueError
from memline.shared.index import driver, jobs
from memline.shared.queue import feed as feed_module
from memline.shared.sync import freshness
from memline.shared.sync.freshness import is_fresh
from tests.support.workspace import Place, paths, until

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n"}, sync={"watch": False, "intervalMinutes": 1})


class Queue:
    """Records what is enqueued; down when a test says so."""

    def __init__(self) -> None:
        self.is_down = False
        self.enqueued: list[list[str]] = []
        #: Times that the store worker was woken.
        self.woken = 0

    def __call__(self, agent: str, paths: Sequence[str], **_: Any) -> None:
        self.check()
        self.enqueued.append(sorted(paths))

    def wake(self, _message: object) -> None:
        self.check()
        self.woken += 1

    def check(self) -> None:
        if self.is_down:
            raise QueueError("Redis cannot be reached", hint="redis-server")


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    monkeypatch.setattr(follow_module, "enqueue_files", queue)
    monkeypatch.setattr(feed_module, "enqueue_files", queue)
    monkeypatch.setattr(follow_module, "send", queue.wake)
    return queue


def test_what_could_not_be_enqueued_is_enqueued_when_the_queue_is_back(
    place: Place, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    place.run("index")

    with Follower([place.agent], clock=clock) as follow:
        queue.is_down = True
        place.write("memory/saved.md", "# Saved\n")
        clock.advance(follow_module.SCAN_EVERY_S)
        for _ in range(5):
            clock.advance(follow_module.QUEUE_RETRY_S)
            follow.tick()
        queue.is_down = False
        clock.advance(follow_module.QUEUE_RETRY_S)
        follow.tick()

    assert queue.enqueued == [["memory/saved.md"]]
    assert [record.message for record in caplog.records].count("queue.unavailable") == 1


def test_files_that_never_arrive_are_enqueued_less_and_less_often(place: Place, queue: Queue) -> None:
    clock = ManualClock()
    place.run("index")

    with Follower([place.agent], clock=clock) as follow:
        place.write("memory/saved.md", "# Saved\n")
        for _ in range(24 * 3600 // 30):
            clock.advance(30)
            follow.tick()

    # Once a minute it would be 1,440 times.
    assert 20 <= len(queue.enqueued) <= 40


def opened(place: Place) -> list[tuple[str, list[str]]]:
    """Kind and files of the open jobs."""
    with driver.reading(place.index_path) as reader:
        return [
            (job.kind, [path for path, _ in jobs.files_of(reader, job.id)]) for job in jobs.open_jobs(reader)
        ]


def test_what_the_first_look_finds_is_a_job_and_what_is_saved_later_is_not(
    place: Place, queue: Queue
) -> None:
    # Later than any file was written.
    clock = ManualClock(4e9)

    with Follower([place.agent], clock=clock) as follow:
        found = opened(place)
        place.write("memory/saved.md", "# Saved\n")
        clock.advance(follow_module.SCAN_EVERY_S)
        follow.tick()

    assert found == opened(place) == [("import", ["MEMORY.md"])]
    assert queue.woken == 1
    assert queue.enqueued == [["memory/saved.md"]]


def test_a_file_that_is_saved_again_does_not_wait_for_its_job(place: Place, queue: Queue) -> None:
    # Before any file was written.
    clock = ManualClock(1_000.0)

    with Follower([place.agent], clock=clock) as follow:
        clock.advance(follow_module.SCAN_EVERY_S)
        follow.tick()

    assert queue.enqueued == [["MEMORY.md"]]


def test_a_job_is_made_also_while_the_queue_is_down(place: Place, queue: Queue) -> None:
    queue.is_down = True

    with Follower([place.agent], clock=ManualClock()) as follow:
        follow.tick()

    assert opened(place) == [("import", ["MEMORY.md"])]


def test_very_many_files_that_a_scan_finds_are_a_job(
    place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "AHEAD_FILES", 2)
    clock = ManualClock()
    place.run("index")

    with Follower([place.agent], clock=clock) as follow:
        for number in range(3):
            place.write(f"memory/{number}.md", f"# Note {number}\n")
        clock.advance(follow_module.SCAN_EVERY_S)
        follow.tick()

    assert opened(place) == [("backfill", [f"memory/{number}.md" for number in range(3)])]
    assert queue.enqueued == []


def test_a_start_that_finds_nothing_new_ends_the_first_look(place: Place, queue: Queue) -> None:
    clock = ManualClock()
    place.run("index")

    with Follower([place.agent], clock=clock) as follow:
        place.write("memory/saved.md", "# Saved\n")
        clock.advance(follow_module.SCAN_EVERY_S)
        follow.tick()

    assert queue.enqueued[-1] == ["memory/saved.md"]
    assert opened(place) == []


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
