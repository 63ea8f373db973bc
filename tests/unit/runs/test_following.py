import threading

import pytest

from memline.producers.runs import following
from memline.producers.runs.following import Lines
from memline.producers.watching import follow
from memline.shared.errors import IndexFault
from tests.support.index_rows import file_row
from tests.support.process import TIMEOUT_S

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


def test_up_says_one_line_a_change(place):
    place.configure(sync={"watchDebounceMs": 50})
    place.index()
    stop, ready, notes = threading.Event(), threading.Event(), []

    def note(text):
        notes.append(text)
        if "follows" in text:
            ready.set()
        if "new.md: " in text:
            stop.set()

    def save():
        ready.wait(TIMEOUT_S)
        place.write("memory/new.md", "The umbrella is in the cellar.\n")

    saving = threading.Thread(target=save)
    saving.start()
    up(place, stop, note)
    saving.join()

    assert [text for text in notes if "new.md" in text] == ["memline: memory/new.md: 1 chunk"]


def test_files_are_said_once_and_very_many_are_counted(place):
    said = []
    lines = Lines(said.append)
    lines.stored(file_row("memory/a.md", "One."))
    lines.stored(file_row("memory/b.md", outcome="removed"))
    lines.tick()
    lines.tick()
    assert said == ["memline: memory/a.md: 1 chunk", "memline: memory/b.md: removed"]

    for number in range(following.MOST_LINES + 5):
        lines.stored(file_row(f"memory/{number}.md", "Note."))
    lines.tick()

    assert said[2:] == [f"memline: {following.MOST_LINES + 5} files read"]
