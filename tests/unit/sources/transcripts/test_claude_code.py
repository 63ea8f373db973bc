"""Sessions of Claude Code: which belong to a workspace, and what of them was typed or written."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memline.shared.clock import ManualClock
from memline.shared.sources.transcripts.claude_code import FORMAT, sessions_of
from memline.shared.sources.transcripts.read_session import read_session

BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7"


def record(role: str, content: object, *, cwd: str = "/w/proj", **more: Any) -> str:
    """The line of a message, as Claude Code writes it."""
    fields = {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": cwd,
        "sessionId": "s",
        "type": role,
        "message": {"role": role, "content": content},
        "timestamp": "2026-02-10T10:00:00.000Z",
        **more,
    }
    return json.dumps(fields) + "\n"


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    (tmp_path / "projects").mkdir()
    return tmp_path / "projects"


def session(projects: Path, folder: str, name: str, *lines: str) -> Path:
    file = projects / folder / f"{name}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(lines))
    return file


def found(projects: Path, workspace: str = "/w/proj") -> list[str]:
    files = sessions_of(str(projects), workspace).discover().files
    return [file.path.removeprefix("sessions/claude-code/").removesuffix(".jsonl") for file in files]


def said(projects: Path, name: str = "a", workspace: str = "/w/proj") -> list[str]:
    store = sessions_of(str(projects), workspace)
    found = read_session(
        partial(store.open, f"sessions/claude-code/{name}.jsonl"),
        format=FORMAT,
        max_tokens=4000,
        overlap_tokens=0,
        clock=ManualClock(1_772_000_000),
    )
    return [line for chunk in found.chunks for line in chunk.text.split("\n")]


def test_the_folder_in_the_records_decides_not_the_name_of_the_folder(projects: Path) -> None:
    session(projects, "-w-proj", "own", record("user", "x"))
    session(projects, "-w-proj", "other", record("user", "x", cwd="/w-proj"))
    session(projects, "-w-proj-sub", "below", record("user", "x", cwd="/w/proj/sub"))
    session(projects, "-w-proj-sub", "beside", record("user", "x", cwd="/w/proj-sub"))
    session(projects, "-w-proj-two", "moved", record("user", "x", cwd="/w/proj2/../proj/y"))
    session(projects, "-elsewhere", "foreign", record("user", "x", cwd="/w/proj"))
    session(projects, "-w-proj", "silent", '{"type":"summary","summary":"x"}\n')

    assert found(projects) == ["own", "below", "moved"]
    assert found(projects, "/w/proj/sub") == ["below"]
    assert found(projects, "/w") == ["own", "below", "beside", "moved"]


def test_the_first_records_may_be_large_or_broken(projects: Path) -> None:
    file = session(
        projects,
        "-w-proj",
        "a",
        json.dumps({"type": "file-history-snapshot", "snapshot": {"cwd": "/elsewhere", "x": "y" * 300_000}})
        + "\n",
        "{broken\n",
        json.dumps(
            {"type": "user", "message": {"content": 'my "cwd": "/elsewhere"'}, "toolUseResult": {"cwd": "/e"}}
        )
        + "\n",
    )
    assert found(projects) == []

    with file.open("a") as more:
        more.write(record("user", "now it says where"))

    assert found(projects) == ["a"]


def test_the_memory_of_a_project_has_its_sessions(projects: Path) -> None:
    session(projects, "-any-thing", "a", record("user", "x", cwd="/somewhere/else"))

    assert found(projects, str(projects / "-any-thing" / "memory")) == ["a"]


def test_what_was_typed_and_written_is_read_and_nothing_else(projects: Path) -> None:
    session(
        projects,
        "-w-proj",
        "a",
        '{"type":"summary","summary":"of another session","leafUuid":"x"}\n',
        record("user", "Where do pelicans sleep?<system-reminder>never mind</system-reminder>"),
        record(
            "assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "On the quay."}]
        ),
        record("assistant", [{"type": "tool_use", "name": "Bash", "input": {"command": "ls pelican"}}]),
        record(
            "user", [{"type": "tool_result", "content": "pelican.txt"}], toolUseResult={"stdout": "pelican"}
        ),
        record("user", "meta", isMeta=True),
        record("user", "do this", isSidechain=True),
        record(
            "user",
            "This session is being continued from a previous conversation that ran out.",
            isCompactSummary=True,
        ),
        record("user", "[Request interrupted by user for tool use]"),
        record(
            "user",
            "<command-name>/review</command-name>\n<command-message>review</command-message>\n"
            "<command-args>the quay</command-args>",
        ),
        record("user", "<local-command-stdout>Set model</local-command-stdout>"),
        record("user", "<bash-input>ls</bash-input><bash-stdout>a</bash-stdout>"),
        record(
            "assistant",
            [{"type": "text", "text": "No response requested."}],
            message={"role": "assistant", "model": "<synthetic>", "content": "No"},
        ),
        record("system", "pelican"),
        record("user", [{"type": "text", "text": f"a key: sk-proj-{BODY}"}, {"type": "image", "source": {}}]),
    )

    lines = said(projects)

    assert lines == [
        "User: Where do pelicans sleep?",
        "Assistant: On the quay.",
        "User: the quay",
        "User: a key: ***",
    ]


def test_what_is_said_about_a_mark_of_the_program_is_read(projects: Path) -> None:
    about = "why is <system-reminder> in my log? the host is kestrel"
    session(projects, "-w-proj", "a", record("user", about), record("user", "<system-reminder>cut off"))

    assert said(projects) == [f"User: {about}"]


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"user","message":7}',
        '{"type":"user","message":{"role":"user","content":{"a":1}}}',
        '{"type":"user","message":{"role":["user"],"content":"x"}}',
        '{"type":"custom-title","customTitle":7}',
        '{"type":"assistant","message":{"role":"user","content":"x"}}',
        "[" * 100_000,
        '{"type":"user"',
        "\x00\xff",
    ],
)
def test_a_record_of_any_shape_says_nothing_and_breaks_nothing(projects: Path, line: str) -> None:
    session(projects, "-w-proj", "a", record("user", "one"), line + "\n", record("user", "two"))

    assert said(projects) == ["User: one", "User: two"]


def test_a_missing_folder_is_an_issue_and_removes_nothing(tmp_path: Path) -> None:
    discovery = sessions_of(str(tmp_path / "projects"), "/w").discover()

    assert discovery.issues == (f"sessions of Claude Code not readable ({tmp_path / 'projects'}): ENOENT",)
    assert discovery.is_unlisted("sessions/claude-code/a.jsonl") and not discovery.is_unlisted(
        "sessions/a.jsonl"
    )


def test_links_are_not_followed(projects: Path, tmp_path: Path) -> None:
    session(tmp_path, "elsewhere", "a", record("user", "x"))
    (projects / "-w-proj").symlink_to(tmp_path / "elsewhere")
    session(projects, "-w-proj-b", "b", record("user", "x"))
    (projects / "-w-proj-b" / "c.jsonl").symlink_to(tmp_path / "elsewhere/a.jsonl")

    discovery = sessions_of(str(projects), "/w/proj").discover()

    assert [file.path for file in discovery.files if file.problem is None] == ["sessions/claude-code/b.jsonl"]
