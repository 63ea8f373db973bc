"""Files are handed to the chunk workers a window at a time."""

from memline.shared.queue import feed
from tests.support.clock import ManualClock


def test_a_feeder_enqueues_again_what_does_not_arrive_later_each_time(
    monkeypatch,
):
    clock = ManualClock()
    enqueued = []
    monkeypatch.setattr(feed, "enqueue_files", lambda *args, **_: enqueued.append(args))
    monkeypatch.setattr(feed.time, "monotonic", clock.now)
    feeder = feed.FileFeeder("main", [("a.md", 1)], scanned_ns=0)

    times = []
    for second in range(600):
        before = len(enqueued)
        feeder.advance(None)
        times += [second] * (len(enqueued) - before)
        clock.advance(1)

    assert times == [0, 11, 32, 73, 154, 315]


def test_a_live_edit_waits_behind_a_megabyte_of_a_scan_at_most(monkeypatch):
    enqueued = []
    monkeypatch.setattr(feed, "enqueue_files", lambda _agent, paths, **_: enqueued.extend(paths))
    files = [(f"{number}.md", 300_000) for number in range(100)]

    feed.FileFeeder("main", files, scanned_ns=0).advance(None)

    assert len(enqueued) == 4
