from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from shared.sources.append import NotAppended, append


def lines(text: str) -> object:
    return lambda before: text


def test_a_note_and_its_folder_are_made_when_there_is_something_to_add(tmp_path: Path) -> None:
    added = append(str(tmp_path), "memory/2026-02-03.md", lambda _: "- one\n- two")

    assert (tmp_path / "memory/2026-02-03.md").read_text("utf-8") == "- one\n- two\n"
    assert (added.start_line, added.end_line) == (1, 2)


def test_what_stands_in_a_note_stays_and_a_missing_line_end_is_made_up_for(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("# Memory\n- old", encoding="utf-8")

    added = append(str(tmp_path), "MEMORY.md", lambda before: f"- new, after {len(before)}")

    assert (tmp_path / "MEMORY.md").read_text("utf-8") == "# Memory\n- old\n- new, after 14\n"
    assert (added.start_line, added.end_line) == (3, 3)


def test_nothing_to_add_makes_no_file_and_no_folder(tmp_path: Path) -> None:
    added = append(str(tmp_path), "memory/x.md", lambda _: "\n")

    assert added.start_line == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["file link", "folder link", "fifo", "folder", "file for folder"])
def test_nothing_is_written_through_links_or_into_what_is_no_file(tmp_path: Path, what: str) -> None:
    root, outside = tmp_path / "ws", tmp_path / "outside"
    (root / "memory").mkdir(parents=True)
    outside.mkdir()
    (outside / "x.md").write_text("theirs\n", encoding="utf-8")
    note = root / "memory" / "x.md"
    if what == "file link":
        note.symlink_to(outside / "x.md")
    elif what == "fifo":
        os.mkfifo(note)
    elif what == "folder":
        note.mkdir()
    else:
        (root / "memory").rmdir()
        if what == "folder link":
            (root / "memory").symlink_to(outside)
        else:
            (root / "memory").write_text("no folder", encoding="utf-8")

    with pytest.raises(NotAppended) as refused:
        append(str(root), "memory/x.md", lambda _: "- mine")

    assert "memory/x.md cannot be added to" in refused.value.message
    assert (outside / "x.md").read_text("utf-8") == "theirs\n"


def test_two_writers_at_once_keep_their_lines_whole(tmp_path: Path) -> None:
    entry = "\n".join(f"- line {number} of a long entry" for number in range(200))

    def write() -> None:
        for _ in range(10):
            append(str(tmp_path), "MEMORY.md", lambda _: entry)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (tmp_path / "MEMORY.md").read_text("utf-8") == f"{entry}\n" * 40


@pytest.mark.parametrize("relative", ["../x.md", "memory/../../x.md", "/etc/x.md", "memory//x.md"])
def test_a_path_that_leaves_its_folder_is_refused(tmp_path: Path, relative: str) -> None:
    (tmp_path / "memory").mkdir()

    with pytest.raises(NotAppended):
        append(str(tmp_path / "memory"), relative, lambda _: "- x")

    assert [*tmp_path.iterdir()] == [tmp_path / "memory"]
