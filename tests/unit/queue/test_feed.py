"""Files of jobs are handed to the chunk workers a window at a time."""

from contextlib import closing

import pytest

from memline.shared.index_writer import IndexWriter
from memline.shared.queue import feed
from memline.shared.scheduling import jobs
from tests.support.index_rows import file_row

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def writer(place):
    with closing(IndexWriter.of(place.agent)) as writer:
        yield writer


@pytest.fixture
def enqueued(monkeypatch, clock):
    """The paths that are enqueued, by the clock of the test."""
    enqueued = []
    monkeypatch.setattr(feed, "enqueue_files", lambda _agent, paths, **_: enqueued.extend(paths))
    monkeypatch.setattr(feed.time, "monotonic", clock.monotonic)
    return enqueued


def make_job(writer, count, size):
    files = [(f"{number:03}.md", size) for number in range(count)]
    with writer.transaction() as (connection, _):
        return jobs.create(connection, jobs.IMPORT, now_ns=1, files=files)


def test_what_does_not_arrive_is_enqueued_again_later_each_time(writer, enqueued, clock):
    make_job(writer, 1, 1)
    feeder, times = feed.JobFeeder("main", "main.sqlite"), []

    for second in range(600):
        before = len(enqueued)
        assert feeder.advance(writer.connection)
        times += [second] * (len(enqueued) - before)
        clock.advance(1)

    assert times == [0, 11, 32, 73, 154, 315]


@pytest.mark.parametrize(("count", "size", "ahead"), [(100, 300_000, 4), (600, 1, feed.AHEAD_FILES)])
def test_a_live_edit_waits_behind_a_window_and_the_rest_follows_what_arrives(
    writer, enqueued, clock, count, size, ahead
):
    job = make_job(writer, count, size)
    feeder = feed.JobFeeder("main", "main.sqlite")

    feeder.advance(writer.connection)
    assert len(enqueued) == ahead
    writer.store_file(file_row("000.md", "read", at=2), job=job.token)
    clock.advance(feed.FEED_EVERY_S)
    feeder.advance(writer.connection)

    assert enqueued[ahead:] == [f"{ahead:03}.md"]


def test_a_process_that_starts_goes_on_and_ends_with_the_last_file(writer, enqueued, clock):
    job = make_job(writer, 2, 1)
    writer.store_file(file_row("000.md", "read", at=2), job=job.token)
    feeder = feed.JobFeeder("main", "main.sqlite")

    assert feeder.advance(writer.connection)
    writer.store_file(file_row("001.md", "read, too", at=2), job=job.token)
    clock.advance(feed.FEED_EVERY_S)

    assert not feeder.advance(writer.connection)
    assert enqueued == ["001.md"]


def test_each_job_is_fed_at_once_though_the_one_before_had_the_same_file(writer, enqueued, clock):
    feeder = feed.JobFeeder("main", "main.sqlite")

    for at in range(2, 6):
        job = make_job(writer, 1, 1)
        feeder.advance(writer.connection)
        writer.store_file(file_row("000.md", f"read {at}", at=at), job=job.token)
        clock.advance(feed.FEED_EVERY_S)

    assert enqueued == 4 * ["000.md"]
