"""Sessions of Codex: which belong to a workspace, and what of them was typed, answered and taken back."""

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from memline.shared.sources.transcripts.stores import TranscriptStore
from tests.support.transcripts import names_in, reading, said_in, store_of

DAY = "sessions/2026/11/23"
NAME = "rollout-2026-11-23T03-27-13-0a1b"


def line(kind: str, payload: dict[str, Any]) -> str:
    return json.dumps({"timestamp": "2026-11-23T03:27:13.592Z", "type": kind, "payload": payload}) + "\n"


def meta(cwd: str = "/w/proj", **more: Any) -> str:
    payload = {"id": "0a1b", "cwd": cwd, "source": "cli", "base_instructions": {"text": "You are Codex."}}
    return line("session_meta", payload | more)


def typed(text: str) -> str:
    """The event of what a person typed, as written now."""
    item = {"type": "UserMessage", "content": [{"type": "text", "text": text}]}
    return line("event_msg", {"type": "item_completed", "item": item})


def typed_before(text: str) -> str:
    """The same as older versions wrote it."""
    return line("event_msg", {"type": "user_message", "message": text, "images": []})


def item(role: str, text: str) -> str:
    kind = "output_text" if role == "assistant" else "input_text"
    payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return line("response_item", payload)


def answered(text: str) -> str:
    """An answer: the item of the model, and the event that repeats it."""
    event = {"type": "AgentMessage", "content": [{"type": "Text", "text": text}]}
    return item("assistant", text) + line("event_msg", {"type": "item_completed", "item": event})


def rolled_back(turns: int) -> str:
    return line("event_msg", {"type": "thread_rolled_back", "num_turns": turns})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / DAY).mkdir(parents=True)
    (tmp_path / "archived_sessions").mkdir()
    return tmp_path


def session(home: Path, *lines: str, folder: str = DAY, name: str = NAME) -> Path:
    file = home / folder / f"{name}.jsonl"
    file.write_text("".join(lines))
    return file


def store(home: Path) -> TranscriptStore:
    return store_of("codex", home)


def test_sessions_of_the_workspace_and_below_it_are_found_also_archived_ones(home: Path) -> None:
    session(home, meta(), name="rollout-own")
    session(home, meta("/w/proj/sub"), name="rollout-below")
    session(home, meta("/w/project"), name="rollout-beside")
    session(home, meta(source={"subagent": "review"}), name="rollout-subagent")
    session(home, json.dumps({"id": "x", "instructions": None}) + "\n", name="rollout-untyped")
    session(home, meta(), folder="archived_sessions", name="rollout-archived")

    assert sorted(names_in(store(home))) == ["rollout-archived", "rollout-below", "rollout-own"]


def test_an_archived_session_keeps_its_path(home: Path) -> None:
    file = session(home, meta(), typed("hello"))
    before = names_in(store(home))
    file.rename(home / "archived_sessions" / file.name)

    assert names_in(store(home)) == before
    assert said_in(store(home), "codex", NAME) == ["User: hello"]


def test_what_a_person_typed_and_what_was_answered_stand_once(home: Path) -> None:
    session(
        home,
        meta(),
        item("user", "# AGENTS.md instructions for /w/proj\n<INSTRUCTIONS>be brief</INSTRUCTIONS>"),
        item("user", "<environment_context><cwd>/w/proj</cwd></environment_context>"),
        item("developer", "permissions"),
        item("user", "Where does the lamp stand?"),
        typed("Where does the lamp stand?"),
        line("response_item", {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}),
        line("response_item", {"type": "function_call", "name": "shell", "arguments": '{"command":"ls"}'}),
        line("response_item", {"type": "function_call_output", "output": "lamp.md"}),
        answered("Beside the window."),
        line("event_msg", {"type": "task_complete", "last_agent_message": "Beside the window."}),
        line("compacted", {"message": "a summary", "replacement_history": []}),
        typed_before(
            "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nMove it."
        ),
        answered("Done."),
    )

    assert said_in(store(home), "codex", NAME) == [
        "User: Where does the lamp stand?",
        "Assistant: Beside the window.",
        "User: Move it.",
        "Assistant: Done.",
    ]


def test_a_message_in_both_forms_stands_once_and_one_typed_twice_twice(home: Path) -> None:
    again = (typed("Go on."), answered("One."), typed("Go on."), answered("Two."))
    session(home, meta(), typed_before("Begin."), typed("Begin."), answered("Zero."), *again)

    said = said_in(store(home), "codex", NAME)

    assert [each for each in said if each.startswith("User")] == [
        "User: Begin.",
        "User: Go on.",
        "User: Go on.",
    ]


def image() -> str:
    """A prompt that is a picture alone, in both forms."""
    item = {"type": "UserMessage", "content": [{"type": "local_image", "path": "/w/a.png"}]}
    return typed_before("") + line("event_msg", {"type": "item_completed", "item": item})


@pytest.mark.parametrize("last", [image(), typed("one"), typed_before("one") + typed("one")])
def test_a_turn_of_a_picture_or_of_the_same_words_is_one_that_is_rolled_back(home: Path, last: str) -> None:
    # The first one was interrupted.
    session(
        home, meta(), typed("zero"), answered("re zero"), typed("one"), last, rolled_back(1), typed("two")
    )

    assert said_in(store(home), "codex", NAME) == [
        "User: zero",
        "Assistant: re zero",
        "User: one",
        "User: two",
    ]


@pytest.mark.parametrize(
    ("turns", "left"),
    [
        (1, ["one", "two"]),
        (2, ["one"]),
        (3, []),
        (99, []),
        (0, ["one", "two", "three"]),
        ("x", ["one", "two", "three"]),
    ],
)
def test_turns_that_were_rolled_back_are_not_found(home: Path, turns: Any, left: list[str]) -> None:
    talk = "".join(typed(word) + answered(f"re {word}") for word in ("one", "two", "three"))
    session(home, meta(), talk, rolled_back(turns), typed("four"))

    expected = [word for each in left for word in (f"User: {each}", f"Assistant: re {each}")]
    assert said_in(store(home), "codex", NAME) == [*expected, "User: four"]


def test_a_rollback_after_it_was_read_reads_the_session_anew_and_lines_stay(home: Path) -> None:
    file = session(home, meta(), typed("one"), answered("two"), typed("secret plan"), answered("yes"))
    with file.open("a") as stream:
        stream.write(rolled_back(1) + typed("other plan"))

    second = reading(store(home), "codex", NAME)

    (chunk,) = second.chunks
    assert "secret plan" not in chunk.text
    assert (chunk.start_line, chunk.end_line) == (2, 9)


def test_new_days_are_watched(home: Path) -> None:
    session(home, meta())

    folders = {str(Path(each).relative_to(home)) for each in store(home).folders()}

    assert {".", "sessions", "sessions/2026", "sessions/2026/11", DAY, "archived_sessions"} <= folders


def test_without_its_folder_nothing_is_taken_for_removed(tmp_path: Path) -> None:
    found = store(tmp_path / "none").discover()

    assert found.is_unlisted(f"sessions/codex/{NAME}.jsonl")
    assert "sessions of Codex not readable" in found.issues[0]


def compressed(file: Path, *, keep: bool = False) -> Path:
    """Do what Codex does to a rollout after a while."""
    packed = file.with_name(f"{file.name}.zst")
    packed.write_bytes(zstandard.compress(file.read_bytes()))
    if not keep:
        file.unlink()
    return packed


def test_a_compressed_session_keeps_its_path_its_lines_and_its_words(home: Path) -> None:
    output = line("response_item", {"type": "function_call_output", "output": "word " * 800_000})
    file = session(home, meta(), typed("which dinghy?"), output, answered("the red one"))
    before = reading(store(home), "codex", NAME)

    packed = compressed(file)
    after = reading(store(home), "codex", NAME)

    (seen,) = store(home).discover().files
    assert (seen.path, seen.absolute) == (f"sessions/codex/{NAME}.jsonl", str(packed))
    # Nothing of it is stored again, and a scan finds what the ledger has.
    assert (after.digest, after.facts) == (before.digest, before.facts)
    assert after.size == seen.size == packed.stat().st_size < 10_000
    assert said_in(store(home), "codex", NAME) == ["User: which dinghy?", "Assistant: the red one"]


def test_a_turn_that_was_rolled_back_is_not_found_in_a_compressed_session(home: Path) -> None:
    compressed(session(home, meta(), typed("kept"), typed("taken back"), rolled_back(1), typed("more")))

    assert said_in(store(home), "codex", NAME) == ["User: kept", "User: more"]


def test_a_plain_session_counts_before_its_compressed_one(home: Path) -> None:
    file = session(home, meta(), typed("the plain one"))
    compressed(file, keep=True)
    file.write_text(meta() + typed("the plain one, gone on"))

    assert names_in(store(home)) == [NAME]
    assert said_in(store(home), "codex", NAME) == ["User: the plain one, gone on"]


def test_a_compressed_session_of_another_folder_or_a_damaged_one_is_not_read(home: Path) -> None:
    compressed(session(home, meta("/w/other"), typed("hm"), name="rollout-other"))
    compressed(session(home, meta(), typed("hm"), name="rollout-bad")).write_bytes(b"this is not Zstandard")
    words = "".join(typed(f"{number} and {number * number}") for number in range(9_000))
    cut = compressed(session(home, meta(), words, name="rollout-cut"))
    data = cut.read_bytes()
    cut.write_bytes(data[:-2_000] + bytes(2_000))

    assert names_in(store(home)) == ["rollout-cut"]
    assert reading(store(home), "codex", "rollout-cut").outcome == "not_text"
