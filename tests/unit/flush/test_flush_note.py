import os
from pathlib import Path

import pytest

from memline.shared.flush import run


def test_lines_that_stand_there_already_are_not_written_again(tmp_path: Path) -> None:
    first = run.write(tmp_path, "memory/d.md", "## Session\n- Ada moves to Oslo\n- Tea is out")
    second = run.write(tmp_path, "memory/d.md", "## Session\n* ada  moves to Oslo\n- Rent is due")
    third = run.write(tmp_path, "memory/d.md", "## Session\n\n- Rent is due")

    text = (tmp_path / "memory/d.md").read_text("utf-8")
    assert text == "## Session\n- Ada moves to Oslo\n- Tea is out\n\n## Session\n- Rent is due\n"
    assert (first.start_line, first.end_line) == (1, 3)
    assert (second.start_line, second.end_line) == (5, 6)
    assert third.start_line == 0


def test_a_workspace_that_cannot_be_written_is_reported_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    assert run.why_not_writable(tmp_path, "memory/d.md") == f"{tmp_path} is not writable"


def test_a_missing_workspace_is_reported(tmp_path: Path) -> None:
    assert "does not exist" in run.why_not_writable(tmp_path / "gone", "memory/d.md")
    assert run.why_not_writable(tmp_path, "memory/d.md") == ""


def test_a_line_below_an_item_belongs_to_it(tmp_path: Path) -> None:
    run.write(tmp_path, "memory/d.md", "- Rent\n  - status: done\n- Tea\n  - status: done")
    run.write(tmp_path, "memory/d.md", "- Rent\n  - status: done\n- Car\n  - status: done")

    text = (tmp_path / "memory/d.md").read_text("utf-8")
    assert text == ("- Rent\n  - status: done\n- Tea\n  - status: done\n\n- Car\n  - status: done\n")


def test_code_stays_whole_and_is_ended(tmp_path: Path) -> None:
    run.write(tmp_path, "memory/d.md", "- a\n```sh\nls\n\nls\n```\n- b\n```\nls")

    text = (tmp_path / "memory/d.md").read_text("utf-8")
    assert text == "- a\n```sh\nls\n\nls\n```\n- b\n```\nls\n```\n"


@pytest.mark.parametrize("entry", ["", "\n\n", "# Heading", "- \n* \n---", "```\n```"])
def test_an_entry_that_says_nothing_makes_no_note(tmp_path: Path, entry: str) -> None:
    assert run.write(tmp_path, "memory/d.md", entry).start_line == 0
    assert not (tmp_path / "memory").exists()


def test_a_note_that_cannot_be_written_is_reported_before_anything_is_paid(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/pipe.md").mkdir()
    (tmp_path / "memory/link.md").symlink_to("/etc/passwd")

    assert run.why_not_writable(tmp_path, "memory/pipe.md").endswith("is not a regular file")
    assert run.why_not_writable(tmp_path, "memory/link.md").endswith("is a symbolic link")
