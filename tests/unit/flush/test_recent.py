from __future__ import annotations

import json
from pathlib import Path

from shared.flush.recent import recent_turns
from shared.flush.size import SessionSize, measure

NAME = "s.jsonl"
COMPACTION = '{"type": "compaction", "summary": "they spoke"}\n'


def said(text: str) -> str:
    return json.dumps({"type": "message", "message": {"role": "user", "content": text}}) + "\n"


def turns(
    folder: Path, size: SessionSize, *, start: int = 0, max_tokens: int = 1_000
) -> tuple[list[str], bool]:
    return recent_turns(folder, NAME, size, start=start, max_tokens=max_tokens, now=1_750_000_000.0)


def test_a_cycle_ends_at_the_next_compaction_that_may_have_come_before_the_turn(tmp_path: Path) -> None:
    before = said("first") + COMPACTION
    (tmp_path / NAME).write_text(before + said("second") + COMPACTION + said("third"), encoding="utf-8")
    size = measure(str(tmp_path), NAME, SessionSize())

    assert turns(tmp_path, size) == (["User: first"], False)
    assert turns(tmp_path, size, start=len(before)) == (["User: second"], False)
    assert turns(tmp_path, size, start=size.compacted_at) == (["User: third"], False)


def test_a_transcript_that_was_written_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(said("old " * 500), encoding="utf-8")
    size = measure(str(tmp_path), NAME, SessionSize())
    (tmp_path / NAME).write_text(COMPACTION + said("kept"), encoding="utf-8")

    assert turns(tmp_path, size, start=1_900) == (["User: kept"], False)


def test_the_newest_are_kept_and_one_that_is_too_long_is_cut(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(said("a" * 40) + said("b" * 40), encoding="utf-8")
    size = measure(str(tmp_path), NAME, SessionSize())

    assert turns(tmp_path, size, max_tokens=15) == (["User: " + "b" * 40], True)
    (cut,), is_cut = turns(tmp_path, size, max_tokens=5)
    assert is_cut and cut.startswith("User: bbb") and len(cut) <= 20


def test_a_transcript_that_is_gone_has_no_turns(tmp_path: Path) -> None:
    assert turns(tmp_path, SessionSize()) == ([], False)
