"""Transcripts are the agent's own session files; whatever else is in their folder is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.sources.transcript_files import TranscriptScope
from shared.sources.transcript_names import is_transcript, is_transcript_name, source_of
from tests.support.transcripts import opening, sessions_folder


@pytest.mark.parametrize(
    "name",
    [
        "083d379f-f105-59a4-a278-e9c0ac7b7f85.jsonl",
        "abc-topic-12.jsonl",
        "a.b.jsonl",
        "réunion.jsonl",
        "abc.jsonl.reset.2026-02-10T10-00-00.000Z",
        "abc.jsonl.deleted.2026-02-10T10-00-00.000Z",
    ],
)
def test_transcripts_and_their_archives_are_known_by_name(name: str) -> None:
    assert is_transcript_name(name)
    assert source_of(f"sessions/{name}") == "sessions"


@pytest.mark.parametrize(
    "name",
    [
        "sessions.json",
        "abc.jsonl.bak",
        "abc.jsonl.reset.2026-02-10T10-00-00.000Z.bak.1",
        "abc.jsonl.bak.2026-02-10T10-00-00.000Z",
        "abc.jsonl.bak-123-456",
        "abc.jsonl.lock",
        "abc.jsonl.tmp",
        "abc.jsonl.reset.2026-02-10T10-00-00.000Z.gz",
        "abc.jsonl.reset.2026-02-10.md",
        "abc.jsonl.reset.",
        "abc.checkpoint.083d379f-f105-59a4-a278-e9c0ac7b7f85.jsonl",
        "abc.trajectory.jsonl",
        "abc.bak.jsonl",
        ".abc.jsonl",
        ".jsonl",
        "abc.JSONL",
        "abc.jsonl.resets.1",
        "notes.md",
        "",
    ],
)
def test_backups_checkpoints_locks_and_other_files_are_none(name: str) -> None:
    assert not is_transcript_name(name)
    assert source_of(f"sessions/{name}") == "memory"


def test_only_paths_right_below_sessions_are_transcripts() -> None:
    assert is_transcript("sessions/a.jsonl")
    for path in ("a.jsonl", "sessions/x/a.jsonl", "/sessions/a.jsonl", "memory/a.jsonl", "sessions/"):
        assert not is_transcript(path)


@pytest.fixture
def scope(tmp_path: Path) -> TranscriptScope:
    return TranscriptScope(str(tmp_path / "state"), "agents/main/sessions")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sessions_folder(tmp_path / "state")


def test_the_folder_is_listed_with_what_cannot_be_read_and_why(scope: TranscriptScope, folder: Path) -> None:
    (folder / "a.jsonl").write_text(opening())
    (folder / "sessions.json").write_text("{}")
    (folder / "folder.jsonl").mkdir()
    (folder / "inner").mkdir()
    (folder / "inner/c.jsonl").write_text(opening())
    (folder / "link.jsonl").symlink_to(folder / "a.jsonl")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / os.fsdecode(b"\xff.jsonl")).write_text(opening())

    discovery = scope.discover()

    problems = {found.path: found.problem and found.problem.outcome for found in discovery.found}
    assert problems == {
        "sessions/a.jsonl": None,
        "sessions/link.jsonl": "symlink",
        "sessions/pipe.jsonl": "special",
        "sessions/\\xff.jsonl": "bad_name",
    }
    assert discovery.issues == ()
    for found in discovery.found:
        if found.problem:
            assert scope.problem_at(found.path) == found.problem
    assert scope.problem_at("sessions/none.jsonl") is None


def test_a_missing_folder_is_an_issue_and_its_files_are_gone(scope: TranscriptScope, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()

    discovery = scope.discover()

    assert discovery.issues == (f"sessions directory missing ({scope.folder})",)
    assert not discovery.is_unlisted("sessions/a.jsonl")


def test_of_a_state_directory_that_is_away_nothing_is_known(scope: TranscriptScope) -> None:
    discovery = scope.discover()

    assert discovery.issues == (f"sessions directory missing ({scope.folder})",)
    assert discovery.is_unlisted("sessions/a.jsonl")
    assert not discovery.is_unlisted("sessions/a.md")


@pytest.mark.parametrize("part", ["agents", "agents/main", "agents/main/sessions"])
def test_no_link_on_the_way_is_followed(
    scope: TranscriptScope, folder: Path, tmp_path: Path, part: str
) -> None:
    (folder / "a.jsonl").write_text(opening())
    moved = tmp_path / "elsewhere"
    (tmp_path / "state" / part).rename(moved)
    (tmp_path / "state" / part).symlink_to(moved)

    discovery = scope.discover()

    assert discovery.found == ()
    assert discovery.issues == (
        f"sessions directory is a symbolic link and not followed ({tmp_path / 'state' / part})",
    )


def test_paths_are_located_in_the_agents_own_folder_alone(scope: TranscriptScope, folder: Path) -> None:
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
    assert scope.concerns_folder(str(folder))
    assert scope.concerns_folder(str(folder.parent))
    assert not scope.concerns_folder(str(folder / "inner"))
