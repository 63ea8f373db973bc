import os
import stat
import threading
from pathlib import Path

import pytest

from memline.shared.flush import state as flush_state
from memline.shared.flush.state import SessionState
from memline.shared.flush.transcript import SessionSize


def test_what_was_written_is_read_again_and_is_private(tmp_path: Path) -> None:
    with flush_state.editing(tmp_path) as state:
        state.sessions["a.jsonl"] = SessionState(size=SessionSize(offset=7), cycle="one", reply="- fact")

    assert flush_state.read(tmp_path).sessions["a.jsonl"] == SessionState(
        size=SessionSize(offset=7), cycle="one", reply="- fact"
    )
    assert stat.S_IMODE((tmp_path / "memline-flush.json").stat().st_mode) == 0o600


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    def add(name: str) -> None:
        for number in range(20):
            with flush_state.editing(tmp_path) as state:
                state.sessions[f"{name}{number}"] = SessionState()

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(flush_state.read(tmp_path).sessions) == 80
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memline-flush.json", "memline-flush.lock"]


def test_an_error_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), flush_state.editing(tmp_path) as state:
        state.sessions["a"] = SessionState()
        raise KeyError

    assert flush_state.read(tmp_path).sessions == {}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"sessions": 5}', "\0", '{"version": 1, "sessions": {"a": {"cycle": 5}}}']
)
def test_a_file_of_another_shape_is_not_a_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "memline-flush.json").write_text(text, encoding="utf-8")

    assert flush_state.read(tmp_path).sessions == {}


def test_a_pipe_or_a_link_in_its_place_is_an_error_and_blocks_no_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "memline-flush.json")
    with pytest.raises(OSError, match="not a regular file"):
        flush_state.read(tmp_path)

    (tmp_path / "memline-flush.json").unlink()
    (tmp_path / "memline-flush.json").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic link"):
        flush_state.read(tmp_path)


def test_a_process_killed_while_writing_leaves_nothing_that_grows(tmp_path: Path) -> None:
    (tmp_path / "memline-flush.json.new").write_text("half", encoding="utf-8")

    with flush_state.editing(tmp_path) as state:
        state.sessions["a"] = SessionState()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["memline-flush.json", "memline-flush.lock"]


def test_a_name_that_is_not_utf8_cannot_be_recorded() -> None:
    assert flush_state.can_be_named("a ü 茶.jsonl")
    assert not flush_state.can_be_named(os.fsdecode(b"\xff.jsonl"))
