"""Files are followed while the queue is down, or while the workers refuse what is enqueued."""

import pytest

from memline.producers.watching import follow as follow_module
from memline.producers.watching.follow import Follower
from memline.shared.errors import QueueError
from memline.shared.index import driver
from memline.shared.scheduling import jobs
from tests.support.clock import ManualClock
from tests.support.transcripts import opening, said, sessions_folder, talk

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n"}, sync={"watch": False, "intervalMinutes": 1})


class Queue:
    """Records what is enqueued; down when a test says so."""

    def __init__(self):
        self.is_down = False
        self.enqueued = []
        #: Times that the store worker was woken.
        self.woken = 0

    def __call__(self, agent, paths, **_):
        self.check()
        self.enqueued.append(sorted(paths))

    def wake(self, _message):
        self.check()
        self.woken += 1

    def check(self):
        if self.is_down:
            raise QueueError("Redis cannot be reached", hint="redis-server")


@pytest.fixture
def queue(monkeypatch):
    queue = Queue()
    monkeypatch.setattr(follow_module, "enqueue_files", queue)
    monkeypatch.setattr(follow_module, "send", queue.wake)
    return queue


def test_what_could_not_be_enqueued_is_enqueued_when_the_queue_is_back(place, queue, caplog):
    clock = ManualClock()
    place.run("index")

    with Follower(place.agent, clock=clock) as follow:
        follow.tick()
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
    assert [record.message for record in caplog.records].count("follow.failed") == 1


def test_files_that_never_arrive_are_enqueued_less_and_less_often(place, queue):
    clock = ManualClock()
    place.run("index")

    with Follower(place.agent, clock=clock) as follow:
        follow.tick()
        place.write("memory/saved.md", "# Saved\n")
        for _ in range(24 * 3600 // 30):
            clock.advance(30)
            follow.tick()

    # Once a minute it would be 1,440 times.
    assert 20 <= len(queue.enqueued) <= 40


def opened(place):
    """Kind and files of the open jobs."""
    with driver.reading(place.index_path) as reader:
        return [
            (job.kind, [path for path, _ in jobs.files_of(reader, job.id)]) for job in jobs.open_jobs(reader)
        ]


def test_what_the_first_look_finds_is_a_job_and_what_is_saved_later_is_not(place, queue):
    # Later than any file was written.
    clock = ManualClock(4e9)

    with Follower(place.agent, clock=clock) as follow:
        follow.tick()
        found = opened(place)
        place.write("memory/saved.md", "# Saved\n")
        clock.advance(follow_module.SCAN_EVERY_S)
        follow.tick()

    assert found == opened(place) == [("import", ["MEMORY.md"])]
    assert queue.woken == 1
    assert queue.enqueued == [["memory/saved.md"]]


def test_a_file_that_is_saved_again_does_not_wait_for_its_job(place, queue):
    # Before any file was written.
    clock = ManualClock(1_000.0)

    with Follower(place.agent, clock=clock) as follow:
        follow.tick()
        clock.advance(follow_module.SCAN_EVERY_S)
        follow.tick()

    assert queue.enqueued == [["MEMORY.md"]]


def test_very_many_files_that_a_scan_finds_are_a_job(place, queue, monkeypatch):
    monkeypatch.setattr(follow_module, "AHEAD_FILES", 2)
    clock = ManualClock()
    place.run("index")

    with Follower(place.agent, clock=clock) as follow:
        follow.tick()
        for number in range(3):
            place.write(f"memory/{number}.md", f"# Note {number}\n")
        clock.advance(follow_module.SCAN_EVERY_S)
        follow.tick()

    assert opened(place) == [("backfill", [f"memory/{number}.md" for number in range(3)])]
    assert queue.enqueued == []


#: Settings of `sync.sessions`, what is added to a session, seconds of rest, and whether it is read on.
GROWTH = {
    "a little growth waits": ({}, said("user", "a") * 49, 0, False),
    "fifty lines are enough": ({}, said("user", "a") * 50, 0, True),
    "and so are 100,000 bytes without a line end": ({}, "x" * 100_000, 0, True),
    "one byte less is not": ({}, "x" * 99_999, 0, False),
    "what came to rest is read however little": ({}, said("user", "good night"), follow_module.QUIET_S, True),
    "bytes of the configuration": ({"deltaBytes": 40}, said("user", "a"), 0, True),
    "lines of the configuration": ({"deltaMessages": 2}, said("user", "a") * 2, 0, True),
    "without a limit of bytes each change is enough": ({"deltaBytes": 0}, said("user", "a"), 0, True),
    "without a limit of lines, too": ({"deltaMessages": 0}, said("user", "a"), 0, True),
}


@pytest.mark.place(sources=["memory", "sessions"], experimental={"sessionMemory": True})
@pytest.mark.parametrize(("limits", "more", "rest_s", "is_due"), GROWTH.values(), ids=GROWTH)
def test_a_session_is_read_on_when_it_grew_enough_or_came_to_rest(
    place, queue, tmp_path, monkeypatch, limits, more, rest_s, is_due
):
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    file = sessions_folder(tmp_path / "state") / "a.jsonl"
    file.write_text(opening() + talk(4))
    place.configure(sync={"sessions": limits, "watch": True})
    place.run("index")
    clock = ManualClock(file.stat().st_mtime)

    with Follower(place.agent, clock=clock) as follow:
        follow.tick()
        with file.open("a") as handle:
            handle.write(more)
        clock.advance(follow_module.SCAN_EVERY_S + rest_s)
        follow.tick()

    assert queue.enqueued == [["sessions/a.jsonl"]] * is_due
