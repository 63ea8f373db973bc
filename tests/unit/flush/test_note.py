from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.flush import note


def test_a_day_has_one_note() -> None:
    assert note.daily_note(datetime(2026, 2, 3, 23, 59, tzinfo=UTC)) == "memory/2026-02-03.md"


def test_lines_that_stand_there_already_are_not_written_again(tmp_path: Path) -> None:
    first = note.write(tmp_path, "memory/d.md", "## Session\n- Ada moves to Oslo\n- Tea is out")
    second = note.write(tmp_path, "memory/d.md", "## Session\n* ada  moves to Oslo\n- Rent is due")
    third = note.write(tmp_path, "memory/d.md", "## Session\n\n- Rent is due")

    text = (tmp_path / "memory/d.md").read_text("utf-8")
    assert text == "## Session\n- Ada moves to Oslo\n- Tea is out\n\n## Session\n- Rent is due\n"
    assert (first.start_line, first.end_line) == (1, 3)
    assert (second.start_line, second.end_line) == (5, 6)
    assert third.start_line == 0


def test_a_workspace_that_cannot_be_written_is_told_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever runs the tests as root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    assert note.why_not_writable(tmp_path, "memory/d.md") == f"{tmp_path} is not writable"


def test_a_workspace_that_is_gone_is_told(tmp_path: Path) -> None:
    assert "does not exist" in note.why_not_writable(tmp_path / "gone", "memory/d.md")
    assert note.why_not_writable(tmp_path, "memory/d.md") == ""
