"""Transcripts are the agent's own session files; whatever else is in their folder is none."""

import os
from pathlib import Path

import pytest

from memline.shared.sources.transcripts.formats import Transcripts
from memline.shared.sources.transcripts.stores import TranscriptFolder
from tests.support.transcripts import opening, sessions_folder


@pytest.fixture
def scope(tmp_path: Path) -> TranscriptFolder:
    return TranscriptFolder(str(tmp_path / "state"), "agents/main/sessions")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sessions_folder(tmp_path / "state")


def test_the_folder_is_listed_with_what_cannot_be_read_and_why(scope: TranscriptFolder, folder: Path) -> None:
    (folder / "a.jsonl").write_text(opening())
    (folder / "sessions.json").write_text("{}")
    (folder / "folder.jsonl").mkdir()
    (folder / "inner").mkdir()
    (folder / "inner/c.jsonl").write_text(opening())
    (folder / "link.jsonl").symlink_to(folder / "a.jsonl")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / os.fsdecode(b"\xff.jsonl")).write_text(opening())

    discovery = scope.discover()

    problems = {found.path: found.problem and found.problem.outcome for found in discovery.files}
    assert problems == {
        "sessions/a.jsonl": None,
        "sessions/link.jsonl": "symlink",
        "sessions/pipe.jsonl": "special",
        "sessions/\\xff.jsonl": "bad_name",
    }
    assert discovery.issues == ()
    for found in discovery.files:
        if found.problem:
            assert scope.problem_at(found.path) == found.problem
    assert scope.problem_at("sessions/none.jsonl") is None


def test_a_missing_folder_is_an_issue_and_its_files_are_gone(scope: TranscriptFolder, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()

    discovery = scope.discover()

    assert discovery.issues == (f"sessions directory missing ({scope.folder})",)
    assert not discovery.is_unlisted("sessions/a.jsonl")


def test_of_a_state_directory_that_is_away_nothing_is_known(scope: TranscriptFolder) -> None:
    discovery = scope.discover()

    assert discovery.issues == (f"sessions directory missing ({scope.folder})",)
    assert discovery.is_unlisted("sessions/a.jsonl")
    assert not discovery.is_unlisted("sessions/a.md")


@pytest.mark.parametrize("part", ["agents", "agents/main", "agents/main/sessions"])
def test_no_link_on_the_way_is_followed(
    scope: TranscriptFolder, folder: Path, tmp_path: Path, part: str
) -> None:
    (folder / "a.jsonl").write_text(opening())
    moved = tmp_path / "elsewhere"
    (tmp_path / "state" / part).rename(moved)
    (tmp_path / "state" / part).symlink_to(moved)

    discovery = scope.discover()

    assert discovery.files == ()
    assert discovery.issues == (
        f"sessions directory is a symbolic link and not followed ({tmp_path / 'state' / part})",
    )


def test_paths_are_located_in_the_agents_own_folder_alone(scope: TranscriptFolder, folder: Path) -> None:
    located = scope.locate("sessions/a.jsonl")

    assert located is not None
    assert located == scope.locate(str(folder / "a.jsonl"))
    assert (located.path, located.absolute) == ("sessions/a.jsonl", str(folder / "a.jsonl"))
    for path in (
        "sessions/../a.jsonl",
        "sessions/a.json",
        "sessions/x/a.jsonl",
        str(folder.parent.parent / "other/sessions/a.jsonl"),
        "sessions/\0.jsonl",
        "/sessions/a.jsonl",
        "a.jsonl",
        "",
    ):
        assert scope.locate(path) is None
    assert Transcripts([scope]).concerns_folder(str(folder))
    assert Transcripts([scope]).concerns_folder(str(folder.parent))
    assert not Transcripts([scope]).concerns_folder(str(folder / "inner"))
