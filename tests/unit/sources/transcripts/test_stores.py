"""Transcripts are the agent's own session files; whatever else is in their folder is none."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from memline.shared.sources.transcripts.formats import Transcripts
from memline.shared.sources.transcripts.stores import TranscriptFolder
from tests.support.transcripts import names_in, opening, reading, sessions_folder, store_of


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


def message_of_claude(text: str, cwd: str) -> str:
    return json.dumps({"type": "user", "cwd": cwd, "message": {"role": "user", "content": text}}) + "\n"


def message_of_codex(text: str, cwd: str) -> str:
    meta = {"type": "session_meta", "payload": {"cwd": cwd}}
    event = {"type": "event_msg", "payload": {"type": "user_message", "message": text}}
    return f"{json.dumps(meta)}\n{json.dumps(event)}\n"


def message_of_gemini(text: str, _cwd: str) -> str:
    return json.dumps({"id": text, "type": "user", "content": text}) + "\n"


#: Client, its folder of the workspace, two folders of sessions in it, and how it writes what a person typed.
#: The workspace of Claude Code is the memory that it keeps itself, beside the sessions.
TWO_FOLDERS = [
    ("claude-code", "{home}/-W/memory", ("-W", "{encoded}"), message_of_claude),
    ("codex", "/w/proj", ("sessions/2026/11/23", "archived_sessions"), message_of_codex),
    ("gemini", "/w/proj", ("tmp/a-sub/chats", "tmp/proj/chats"), message_of_gemini),
    ("gemini", "/w/proj", ("tmp/{hash}/chats", "tmp/proj/chats"), message_of_gemini),
]


@pytest.mark.parametrize(("client", "workspace", "names", "line"), TWO_FOLDERS)
def test_a_session_grows_in_the_folder_that_has_it(
    tmp_path: Path, client: str, workspace: str, names: tuple[str, str], line: Callable[[str, str], str]
) -> None:
    workspace = workspace.format(home=tmp_path)
    encoded = "".join(each if each.isalnum() else "-" for each in workspace)
    digest = hashlib.sha256(workspace.encode()).hexdigest()
    folders = [tmp_path / name.format(encoded=encoded, hash=digest) for name in names]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / f"session-{number}.jsonl").write_text(line(f"first{number}", workspace))
        if "gemini" in client and folder.parent.name != digest:
            place = workspace if folder.parent.name == "proj" else f"{workspace}/sub"
            (folder.parent / ".project_root").write_text(place)
    store = store_of(client, tmp_path, workspace)
    before = [reading(store, client, f"session-{number}") for number in (0, 1)]

    for number, folder in enumerate(folders):
        with (folder / f"session-{number}.jsonl").open("a") as file:
            file.write(line(f"second{number}", workspace))
    after = [reading(store, client, f"session-{number}") for number in (0, 1)]

    assert sorted(names_in(store)) == ["session-0", "session-1"]
    for number, (one, two) in enumerate(zip(before, after, strict=True)):
        located = store.locate(f"sessions/{client}/session-{number}.jsonl")
        assert located and located.absolute == str(folders[number] / f"session-{number}.jsonl")
        assert [chunk.text for chunk in one.chunks] == [f"User: first{number}"]
        assert two.outcome == "indexed"
        assert [chunk.text for chunk in two.chunks] == [f"User: first{number}\nUser: second{number}"]
