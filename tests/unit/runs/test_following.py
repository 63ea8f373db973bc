import threading

import pytest

from memline.producers.runs import following
from memline.producers.watching import follow
from memline.shared.errors import IndexFault

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


def up(place, stop, on_note=lambda _: None):
    following.up(place.settings, [place.agent], stop=stop, on_note=on_note)


def test_up_goes_on_when_a_scan_fails_and_the_log_quotes_no_note(place, monkeypatch, caplog):
    stop, scans = threading.Event(), []
    monkeypatch.setattr(follow, "SCAN_EVERY_S", 0.1)

    def scan(*_, **__):
        scans.append("scan")
        if len(scans) == 4:
            stop.set()
        raise IndexFault("the index is locked") if len(scans) == 1 else TypeError("my secret")

    monkeypatch.setattr(follow, "make_plan", scan)
    up(place, stop)

    said = [
        each.__dict__["memline_fields"]["error"] for each in caplog.records if each.message == "follow.failed"
    ]
    assert said[0] == "the index is locked"
    assert [each.partition(", line")[0] for each in said[1:]] == ["TypeError in test_following.py"]


def test_up_moves_a_damaged_index_aside_and_builds_it_again(place):
    place.index()
    place.index_path.write_bytes(b"this is not a database " * 1_000)
    stop, notes = threading.Event(), []

    def note(text):
        notes.append(text)
        if "follows" in text:
            stop.set()

    up(place, stop, note)

    (aside,) = place.index_path.parent.glob("*.corrupt-*Z")
    assert any(f"it was moved to {aside}, and the index is built again" in text for text in notes)
