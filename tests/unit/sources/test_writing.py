import errno
import fcntl
import os
from datetime import UTC, datetime
from unittest.mock import patch

import pytest

from memline.shared.sources import writing as module
from memline.shared.sources.writing import (
    AppendRefused,
    append,
    daily_entry,
    long_term_entry,
)
from tests.support.clock import ManualClock

MOMENT = datetime(2026, 2, 10, 14, 32, tzinfo=UTC)


def lines(text):
    return lambda before: text


def test_a_note_and_its_folder_are_made_when_there_is_something_to_add(tmp_path):
    added = append(str(tmp_path), "memory/2026-02-03.md", lambda _: "- one\n- two")

    assert (tmp_path / "memory/2026-02-03.md").read_text("utf-8") == "- one\n- two\n"
    assert (added.start_line, added.end_line) == (1, 2)


def test_an_append_keeps_the_note_and_adds_a_missing_line_end(tmp_path):
    (tmp_path / "MEMORY.md").write_text("# Memory\n- old", encoding="utf-8")

    added = append(str(tmp_path), "MEMORY.md", lambda before: f"- new, after {len(before)}")

    assert (tmp_path / "MEMORY.md").read_text("utf-8") == "# Memory\n- old\n- new, after 14\n"
    assert (added.start_line, added.end_line) == (3, 3)


def test_nothing_to_add_makes_no_file_and_no_folder(tmp_path):
    added = append(str(tmp_path), "memory/x.md", lambda _: "\n")

    assert added.start_line == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["file link", "folder link", "fifo", "folder", "file for folder"])
def test_nothing_is_written_through_links_or_into_what_is_no_file(tmp_path, what):
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

    with pytest.raises(AppendRefused) as refused:
        append(str(root), "memory/x.md", lambda _: "- mine")

    assert "memory/x.md cannot be added to" in refused.value.message
    assert (outside / "x.md").read_text("utf-8") == "theirs\n"


@pytest.mark.parametrize("relative", ["../x.md", "memory/../../x.md", "/etc/x.md", "memory//x.md"])
def test_a_path_that_leaves_its_folder_is_refused(tmp_path, relative):
    (tmp_path / "memory").mkdir()

    with pytest.raises(AppendRefused):
        append(str(tmp_path / "memory"), relative, lambda _: "- x")

    assert [*tmp_path.iterdir()] == [tmp_path / "memory"]


def refusal(root, **options):
    with pytest.raises(AppendRefused) as refused:
        append(str(root), "MEMORY.md", lambda _: "- x", **options)  # type: ignore[arg-type]
    return f"{refused.value.message} | {refused.value.hint}"


def test_an_append_keeps_every_byte_that_is_there(tmp_path):
    (tmp_path / "MEMORY.md").write_bytes(b"\xff old\r\nno end of line")

    added = append(str(tmp_path), "MEMORY.md", lambda _: "- one\n  two")

    assert (tmp_path / "MEMORY.md").read_bytes() == b"\xff old\r\nno end of line\r\n- one\r\n  two\r\n"
    assert (added.start_line, added.end_line, added.size) == (3, 4, 37)


@pytest.mark.parametrize(
    ("before", "between"),
    [
        ("# Log\n\n```sh\nls -la\n", "```\n\n"),
        ("> ~~~\n> ls -la", "\n> ~~~\n\n"),
        ("```\nls\n```\n", ""),
        ("```\nls\n```", "\n"),
        ("# Log\n\n<!-- draft\n", "-->\n\n"),
        ("# Log\n\n<!-- draft -->\n\ntext `<!--`\n", ""),
        ("# Log\n\n- 21:43 \\<!-- hi\n- the note begins with <!-- TODO\n", ""),
        ("# Log\n\n%% draft\nhidden\n", "%%\n\n"),
        ("%%\nhidden\n%%\n\n%% so %% and 5 %\n", ""),
        ("# Log\n\n$$\nx = 1\n", "$$\n\n"),
        ("It costs 5 $$ or 100%% more.\n", ""),
        ("It costs $$ a lot, 100%% sure.\n\n$$\nx = 1\n$$\n\n%%\nhidden\n%%\n", ""),
        ("# Log\n\n<pre class='x'>\nls\n\nls\n", "</pre>\n\n"),
        ("<pre>\nls\n</pre>\n\n<prefix>\n\n", ""),
        ("{/* draft\n", "*/}\n\n"),
        ("# Log\n\n<details>\n<summary>x</summary>\n", "\n"),
        ("<details>\n\ntext\n", ""),
    ],
)
def test_what_a_note_leaves_open_is_closed_before_the_entry(tmp_path, before, between):
    (tmp_path / "MEMORY.md").write_text(before)

    added = append(str(tmp_path), "MEMORY.md", lambda _: "- new")

    text = (tmp_path / "MEMORY.md").read_text()
    assert text == f"{before}{between}- new\n" and text.split("\n")[added.start_line - 1] == "- new"


def test_a_link_that_takes_the_place_of_the_note_after_the_look_is_not_followed(tmp_path):
    (tmp_path / "outside.md").write_text("outside\n")
    (tmp_path / "MEMORY.md").write_text("note\n")
    look = os.stat

    def look_then_swap(*args, **options):
        status = look(*args, **options)  # type: ignore[call-overload]
        (tmp_path / "MEMORY.md").unlink()
        (tmp_path / "MEMORY.md").symlink_to(tmp_path / "outside.md")
        return status  # type: ignore[no-any-return]

    with patch.object(module.os, "stat", look_then_swap):
        assert "a symbolic link" in refusal(tmp_path)

    assert (tmp_path / "outside.md").read_text() == "outside\n"


def test_a_note_that_an_editor_replaces_meanwhile_gets_the_entry_all_the_same(tmp_path, monkeypatch):
    append(str(tmp_path), "MEMORY.md", lambda _: "- first")
    lock, replaced = fcntl.flock, []

    def replaced_before_the_lock(*arguments):
        if not replaced:
            replaced.append(True)
            (tmp_path / "new").write_text("- first, edited\n")
            (tmp_path / "new").rename(tmp_path / "MEMORY.md")
        lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", replaced_before_the_lock)
    append(str(tmp_path), "MEMORY.md", lambda _: "- second")

    assert (tmp_path / "MEMORY.md").read_text() == "- first, edited\n- second\n"


def test_waiting_for_a_lock_ends(tmp_path):
    append(str(tmp_path), "MEMORY.md", lambda _: "- entry")
    with (tmp_path / "MEMORY.md").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        assert "another program keeps it locked | try again later" in refusal(tmp_path, clock=ManualClock())

    assert (tmp_path / "MEMORY.md").read_text() == "- entry\n"


def test_a_note_does_not_grow_beyond_its_limit(tmp_path):
    (tmp_path / "MEMORY.md").write_bytes(b"x" * 97 + b"\n")

    assert "it would have 102 bytes, 100 are allowed" in refusal(tmp_path, max_bytes=100)
    assert (tmp_path / "MEMORY.md").stat().st_size == 98


def test_half_an_entry_is_taken_back_when_the_disk_is_full(tmp_path):
    append(str(tmp_path), "MEMORY.md", lambda _: "- entry")
    write, calls = os.write, []

    def half_then_full(opened, data):
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(opened, data[: len(data) // 2])

    with patch.object(module.os, "write", half_then_full):
        assert "no space left" in refusal(tmp_path)

    assert (tmp_path / "MEMORY.md").read_text() == "- entry\n"


def test_a_note_in_another_encoding_is_left_alone(tmp_path):
    (tmp_path / "MEMORY.md").write_bytes("héllo".encode("utf-16"))

    assert "not UTF-8" in refusal(tmp_path)


def test_an_entry_of_a_day_carries_its_time_and_a_lasting_one_its_day():
    assert daily_entry("Deployed v1.5.2.", MOMENT) == "- 14:32 Deployed v1.5.2."
    assert long_term_entry("We keep cents.", MOMENT) == "- We keep cents. (2026-02-10)"


@pytest.mark.parametrize(
    "line", ["# heading", "###### deep", "===", "---", "```", "~~~py", "* * *", "<!-- hidden", "#"]
)
def test_no_line_of_an_entry_is_structure(line):
    assert daily_entry(f"x\n{line}\ny", MOMENT) == f"- 14:32 x\n  \\{line}\n  y"
    assert long_term_entry(line, MOMENT).startswith("- \\")
