"""Sessions of Claude Code, Codex and Gemini CLI: which belong to a workspace, and what of them was said."""

import json
import os
from contextlib import nullcontext

import pytest

from memline.shared.sessions.transcripts import Transcripts
from memline.shared.sources.safe_open import FileRefused
from tests.support.transcripts import names_in, openclaw_store, opening, said_in, sessions_folder, store_of

AT = "2026-11-23T03:27:13.592Z"


def line(**fields):
    return json.dumps({"timestamp": AT, **fields}) + "\n"


class Claude:
    """Writes sessions as Claude Code does."""

    name, folder = "claude-code", "-w-proj"

    def record(self, role, content, *, cwd="/w/proj", **more):
        message = {"role": role, "content": content}
        return line(**{"isSidechain": False, "cwd": cwd, "type": role, "message": message, **more})

    def head(self, cwd="/w/proj"):
        return self.record("system", "", cwd=cwd)

    def typed(self, text):
        return self.record("user", text, uuid=f"u-{text}")

    def answered(self, text):
        return self.record("assistant", [{"type": "text", "text": text}], uuid=f"a-{text}")


class Codex:
    """Writes sessions as Codex does: each message as an event and as an item."""

    name, folder = "codex", "sessions/2026/11/23"

    def head(self, cwd="/w/proj", **more):
        return line(type="session_meta", payload={"cwd": cwd, "source": "cli"} | more)

    def event(self, **fields):
        return line(type="event_msg", payload=fields)

    def typed(self, text, at=""):
        item = {"type": "UserMessage", "content": [{"type": "text", "text": text}], "at": at}
        return self.item("user", text) + self.event(type="item_completed", item=item)

    def typed_before(self, text):
        return self.event(type="user_message", message=text, images=[])

    def item(self, role, text):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text}]
        return line(type="response_item", payload={"type": "message", "role": role, "content": content})

    def answered(self, text):
        event = {"type": "AgentMessage", "content": [{"type": "Text", "text": text}]}
        return self.item("assistant", text) + self.event(type="item_completed", item=event)


class Gemini:
    """Writes sessions as Gemini CLI does."""

    name, folder = "gemini", "tmp/proj/chats"

    def head(self, cwd="/w/proj"):
        return line(sessionId="s", kind="main")

    def message(self, identity, kind, content, **more):
        return line(id=identity, type=kind, content=content, **more)

    def typed(self, text):
        return self.message(f"u-{text}", "user", [{"text": text}])

    def answered(self, text):
        return self.message(f"g-{text}", "gemini", text)


PROGRAMS = [Claude(), Codex(), Gemini()]


def write(home, program, *lines, name="session-a", folder=None):
    file = home / (folder or program.folder) / f"{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines))
    if program.name == "gemini" and not folder:
        (file.parent.parent / ".project_root").write_text("/w/proj")
    return file


def said(home, program, *lines):
    write(home, program, program.head(), *lines)
    return said_in(store_of(program.name, home), program.name, "session-a")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_each_message_is_read_once_also_when_its_record_was_written_twice(tmp_path, program):
    lines = [program.typed("one"), program.answered("two"), program.typed("three")]
    expected = ["User: one", "Assistant: two", "User: three"]

    assert said(tmp_path, program, *lines) == expected
    assert (
        said(tmp_path, program, *(each + "\n" for all_ in lines for each in all_.splitlines() * 2))
        == expected
    )


ODD = (
    '{"type":"user","message":7}',
    '{"type":"user","message":{"role":["user"],"content":"x"}}',
    '{"type":"user"',
    '{"type":"event_msg","payload":7}',
    '{"type":"response_item","payload":{"type":"message"}}',
    '{"id":7,"type":"user"}',
    '{"$rewindTo":7}',
    '{"type":"custom-title","customTitle":7}',
    "[" * 100_000,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_record_of_any_shape_breaks_nothing(tmp_path, program):
    odd = (f"{each}\n" for each in ODD)

    assert said(tmp_path, program, program.typed("one"), *odd, program.answered("two")) == [
        "User: one",
        "Assistant: two",
    ]


# Which sessions belong to a workspace


def test_claude_code_the_folder_in_the_records_decides_not_the_name_of_the_folder(tmp_path):
    program = Claude()
    late = {"type": "file-history-snapshot", "snapshot": {"cwd": "/elsewhere", "x": "y" * 300_000}}
    for name, folder, lines in (
        ("own", "-w-proj", [program.typed("x")]),
        ("below", "-w-proj-sub", [program.head("/w/proj/sub")]),
        ("twin", "-w-proj", [program.head("/w-proj")]),
        ("beside", "-w-project", [program.head("/w/project")]),
        ("late", "-w-proj", [json.dumps(late) + "\n", "{broken\n", program.head()]),
        ("silent", "-w-proj", [json.dumps(late) + "\n"]),
    ):
        write(tmp_path, program, *lines, name=name, folder=folder)

    assert sorted(names_in(store_of("claude-code", tmp_path))) == ["below", "late", "own"]


def test_claude_code_the_memory_of_a_project_has_its_sessions(tmp_path):
    write(tmp_path, Claude(), Claude().head("/somewhere/else"), name="a", folder="-any-thing")

    assert names_in(store_of("claude-code", tmp_path, str(tmp_path / "-any-thing/memory"))) == ["a"]


def test_codex_the_first_record_decides_also_of_an_archived_session(tmp_path):
    program = Codex()
    write(tmp_path, program, program.head("/w/proj/sub"), name="below")
    write(tmp_path, program, program.head("/w/project"), name="beside")
    write(tmp_path, program, program.head(source={"subagent": "review"}), name="subagent")
    write(tmp_path, program, json.dumps({"id": "x"}) + "\n", name="untyped")
    own = write(tmp_path, program, program.head(), program.typed("hello"), name="own")
    store = store_of("codex", tmp_path)
    before = names_in(store)
    (tmp_path / "archived_sessions").mkdir()
    own.rename(tmp_path / "archived_sessions" / own.name)

    assert sorted(before) == sorted(names_in(store)) == ["below", "own"]
    assert said_in(store, "codex", "own") == ["User: hello"]
    watched = {os.path.relpath(each, tmp_path) for each in store.folders()}
    assert {
        ".",
        "sessions",
        "sessions/2026",
        "sessions/2026/11",
        program.folder,
        "archived_sessions",
    } <= watched


def test_gemini_the_path_beside_the_chats_decides(tmp_path):
    program = Gemini()
    places = {"proj": "/w/proj", "sub": "/w/proj/sub\n", "other": "/w/project", "none": None}
    for name, place in places.items():
        write(tmp_path, program, program.head(), name=f"session-{name[:5]}", folder=f"tmp/{name}/chats")
        if place:
            (tmp_path / "tmp" / name / ".project_root").write_text(place)
    write(tmp_path, program, program.head(), name="session-child", folder="tmp/proj/chats/parent")
    write(tmp_path, program, program.head(), name="notes", folder="tmp/proj/chats")

    assert names_in(store_of("gemini", tmp_path)) == ["session-proj", "session-sub"]


# What was said


def test_claude_code_what_was_typed_and_written_is_read_and_nothing_else(tmp_path):
    program = Claude()
    record, about = program.record, "why is <system-reminder> in my log? the host is kestrel"
    queued = {"type": "queued_command", "commandMode": "prompt", "prompt": "And the gulls?"}
    refused = "The user doesn't want to proceed with this tool use. To tell you how, the user said:\n"
    assert said(
        tmp_path,
        program,
        record("user", "Where do pelicans sleep?<system-reminder>never mind</system-reminder>"),
        record(
            "assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "On the quay."}]
        ),
        record("assistant", [{"type": "tool_use", "name": "Bash", "input": {"command": "ls pelican"}}]),
        record("user", [{"type": "tool_result", "content": "pelican.txt"}], toolUseResult={"stdout": "x"}),
        record("user", [{"type": "tool_result", "is_error": True, "content": f"{refused} In the loft."}]),
        line(type="attachment", uuid="q", attachment=queued),
        line(type="attachment", uuid="r", attachment=queued | {"commandMode": "task-notification"}),
        *(record("user", "no", **{mark: True}) for mark in ("isMeta", "isSidechain", "isCompactSummary")),
        record("user", "[Request interrupted by user for tool use]"),
        record("user", "<command-name>/review</command-name>\n<command-args>the quay</command-args>"),
        record("user", "<bash-input>ls</bash-input><bash-stdout>a</bash-stdout>"),
        record("user", "<system-reminder>cut off"),
        record("assistant", "", message={"role": "assistant", "model": "<synthetic>", "content": "No"}),
        record("user", about),
    ) == [
        *("User: Where do pelicans sleep?", "Assistant: On the quay.", "User: In the loft."),
        *("User: And the gulls?", "User: the quay", f"User: {about}"),
    ]


def test_codex_what_a_person_typed_and_what_was_answered_stand_once(tmp_path):
    program = Codex()
    assert said(
        tmp_path,
        program,
        program.item("user", "# AGENTS.md instructions for /w/proj\n<INSTRUCTIONS>be brief</INSTRUCTIONS>"),
        program.item("developer", "permissions"),
        program.typed("Where does the lamp stand?"),
        line(type="response_item", payload={"type": "function_call_output", "output": "lamp.md"}),
        program.answered("Beside the window."),
        program.event(type="task_complete", last_agent_message="Beside the window."),
        line(type="compacted", payload={"message": "a summary"}),
        program.typed_before("# Context:\n- a.py\n\n## My request for Codex:\nMove it."),
        program.typed_before("Begin."),
        program.typed("Begin."),
        program.answered("Zero."),
        program.typed("Begin.", at="later"),
    ) == [
        *("User: Where does the lamp stand?", "Assistant: Beside the window.", "User: Move it."),
        *("User: Begin.", "Assistant: Zero.", "User: Begin."),
    ]


@pytest.mark.parametrize(
    ("turns", "left"),
    [
        *((1, ["one", "two"]), (2, ["one"]), (3, []), (99, [])),
        *((0, ["one", "two", "three"]), ("x", ["one", "two", "three"])),
    ],
)
def test_codex_turns_that_were_rolled_back_are_not_found(tmp_path, turns, left):
    program = Codex()
    talk = (program.typed(word) + program.answered(f"re {word}") for word in ("one", "two", "three"))
    back = program.event(type="thread_rolled_back", num_turns=turns)

    expected = [words for each in left for words in (f"User: {each}", f"Assistant: re {each}")]
    assert said(tmp_path, program, *talk, back, program.typed("four")) == [*expected, "User: four"]


def test_gemini_what_a_person_typed_and_what_was_answered(tmp_path):
    program = Gemini()
    message = program.message
    checkpoint = {"$set": {"messages": [{"id": "z", "type": "user", "content": "a summary"}]}}
    assert said(
        tmp_path,
        program,
        message("a", "user", [{"text": "<session_context>today is Monday</session_context>"}]),
        message("b", "info", "update available"),
        message("c", "user", "Read @lamp.md\n--- Content from referenced files ---\nsecret lamp"),
        message("d", "user", "Look at it\n\nthe whole file", displayContent=[{"text": "Look at it"}]),
        message("e", "gemini", "", toolCalls=[{"name": "read", "result": "lamp"}]),
        message("f", "user", [{"functionResponse": {"response": {"output": "lamp"}}}]),
        message("g", "gemini", "It", thoughts=[{"subject": "hm"}]),
        json.dumps(checkpoint) + "\n",
        message("g", "gemini", "It stands.", tokens={"total": 3}),
    ) == ["User: Read @lamp.md", "User: Look at it", "Assistant: It stands."]


@pytest.mark.parametrize(
    ("target", "left"),
    [
        ("u-two", ["User: one", "Assistant: re one"]),
        ("g-re two", ["User: one", "Assistant: re one", "User: two"]),
        ("?", []),
    ],
)
def test_gemini_what_was_rewound_is_not_found(tmp_path, target, left):
    program = Gemini()
    talk = (program.typed(word) + program.answered(f"re {word}") for word in ("one", "two"))
    back = json.dumps({"$rewindTo": target}) + "\n"

    assert said(tmp_path, program, *talk, back, program.typed("three")) == [*left, "User: three"]


# Folders


@pytest.fixture
def scope(tmp_path):
    return openclaw_store(tmp_path / "state")


def test_the_folder_is_listed_with_what_cannot_be_read_and_why(scope, tmp_path):
    folder = sessions_folder(tmp_path / "state")
    (folder / "a.jsonl").write_text(opening())
    (folder / "sessions.json").write_text("{}")
    (folder / "folder.jsonl").mkdir()
    (folder / "link.jsonl").symlink_to(folder / "a.jsonl")
    os.mkfifo(folder / "pipe.jsonl")

    discovery = scope.discover()

    assert {found.path: found.problem and found.problem.outcome for found in discovery.files} == {
        "sessions/a.jsonl": None,
        "sessions/link.jsonl": "symlink",
        "sessions/pipe.jsonl": "special",
    }


@pytest.mark.parametrize("part", ["agents", "agents/main", "agents/main/sessions"])
def test_no_link_on_the_way_is_followed(scope, tmp_path, part):
    (sessions_folder(tmp_path / "state") / "a.jsonl").write_text(opening())
    (tmp_path / "state" / part).rename(tmp_path / "elsewhere")
    (tmp_path / "state" / part).symlink_to(tmp_path / "elsewhere")

    discovery = scope.discover()

    assert discovery.files == () and "a symbolic link, which is not followed" in discovery.issues[0]


@pytest.mark.parametrize(
    ("path", "is_covered"),
    [
        ("sessions/a.jsonl", True),
        *((f"sessions/{name}", False) for name in ("../a.jsonl", "a.json", "x/a.jsonl", "\0.jsonl", "")),
        *(("sessions/codex/a.jsonl", False), ("a.jsonl", False)),
    ],
)
def test_a_path_is_that_of_a_transcript_of_this_agent_or_it_is_not_opened(scope, tmp_path, path, is_covered):
    (sessions_folder(tmp_path / "state") / "a.jsonl").write_text(opening())
    transcripts = Transcripts([scope])

    assert transcripts.covers(path) is is_covered
    with pytest.raises(FileRefused) if not is_covered else nullcontext(), transcripts.open(path):
        pass


def test_a_folder_on_the_way_concerns_the_transcripts(scope, tmp_path):
    folder = sessions_folder(tmp_path / "state")

    assert Transcripts([scope]).concerns_folder(str(folder.parent))
    assert not Transcripts([scope]).concerns_folder(str(folder / "inner"))
