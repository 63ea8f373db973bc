import threading
from typing import Any

import pytest

from memline.producers.runs import following
from memline.producers.watching import follow
from memline.shared.errors import IndexFault, QueueError
from memline.shared.sync.plan import Plan
from tests.support.workspace import Place

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


def test_up_goes_on_and_status_says_so_when_a_scan_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    monkeypatch.setattr(follow, "SCAN_EVERY_S", 0.1)
    scans: list[str] = []

    def scan(*_: Any, **__: Any) -> Plan:
        scans.append("scan")
        if len(scans) == 3:
            stop.set()
        raise IndexFault("the index is locked") if len(scans) == 1 else TypeError("unhashable type: 'list'")

    monkeypatch.setattr(follow, "make_plan", scan)
    following.run(place.settings, [place.agent], stop=stop, on_note=lambda _: None)
    trouble = next(each for each in place.report()["findings"] if each["code"] == "following_fails")

    assert len(scans) == 3
    assert trouble["subject"] == "files"
    assert "TypeError in test_following.py, line " in trouble["what"]


def test_up_moves_a_damaged_index_aside_and_builds_it_again(place: Place) -> None:
    place.index()
    place.index_path.write_bytes(b"this is not a database " * 1_000)
    stop = threading.Event()
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        if "follows" in text:
            stop.set()

    following.run(place.settings, [place.agent], stop=stop, on_note=note)

    (aside,) = place.index_path.parent.glob("*.corrupt-*Z")
    assert any(f"it was moved to {aside} and is built again" in text for text in notes)
    assert "agent main embeds with none" in notes[1]


def test_watch_needs_a_queue(place: Place) -> None:
    with pytest.raises(QueueError):
        following.watch(place.settings, [place.agent], stop=threading.Event())
