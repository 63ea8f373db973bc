"""Sessions of Qwen Code: which belong to a workspace, and what of them was typed, answered and taken back."""

import json
from pathlib import Path
from typing import Any

import pytest

from memline.shared.sources.transcripts.stores import TranscriptStore
from tests.support.transcripts import names_in, read_session, said_in, store_of


class Talk:
    """Writes records as Qwen Code does, each below the one before."""

    def __init__(self, file: Path, cwd: str = "/w/proj") -> None:
        self.file, self.cwd, self.count = file, cwd, 0
        self.last: str | None = None
        file.parent.mkdir(parents=True, exist_ok=True)

    def write(self, kind: str, *, parent: str | None = "", **more: Any) -> str:
        self.count += 1
        record = {
            "uuid": f"u{self.count}",
            "parentUuid": self.last if parent == "" else parent,
            "sessionId": self.file.stem,
            "timestamp": "2026-11-24T17:53:09.797Z",
            "type": kind,
            "cwd": self.cwd,
            "version": "0.15.10",
            **more,
        }
        with self.file.open("a") as stream:
            stream.write(json.dumps(record, separators=(",", ":")) + "\n")
        self.last = f"u{self.count}"
        return self.last

    def typed(self, *texts: str, **more: Any) -> str:
        return self.write(
            "user", message={"role": "user", "parts": [{"text": each} for each in texts]}, **more
        )

    def answered(self, *parts: dict[str, Any]) -> str:
        return self.write("assistant", model="m", message={"role": "model", "parts": list(parts)})

    def noted(self, subtype: str, payload: object, **more: Any) -> str:
        return self.write("system", subtype=subtype, systemPayload=payload, **more)


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path / "-w-proj/chats/a.jsonl")


def store(talk: Talk) -> TranscriptStore:
    return store_of("qwen", talk.file.parents[2])


def said(talk: Talk) -> list[str]:
    return said_in(store(talk), "qwen", "a")


def test_where_its_records_were_written_decides_and_not_the_name_of_the_folder(tmp_path: Path) -> None:
    for folder, name, cwd in (
        ("-w-proj", "a", "/w/proj"),
        ("-w-proj", "b", "/w-proj"),
        ("-w-proj-sub", "c", "/w/proj/sub"),
        ("-w-proj-sub", "d", "/w/proj-sub"),
        ("-w-other", "e", "/w/other"),
    ):
        Talk(tmp_path / folder / "chats" / f"{name}.jsonl", cwd).typed("one")

    assert names_in(store_of("qwen", tmp_path)) == ["a", "c"]


def test_what_a_person_typed_and_what_was_answered(talk: Talk) -> None:
    talk.noted("at_command", {"filesRead": ["lamp.md"], "userText": "Read @lamp.md please"})
    talk.typed("Read @lamp.md please", "\n--- Content from referenced files ---", "\nthe lamp file\n")
    talk.noted("ui_telemetry", {"uiEvent": {"response_text": "It stands."}})
    talk.answered({"text": "hm", "thought": True}, {"text": "I look."}, {"functionCall": {"name": "read"}})
    talk.write("tool_result", message={"role": "user", "parts": [{"functionResponse": {"output": "lamp"}}]})
    talk.answered({"text": "It stands."})
    talk.typed("a job is done", subtype="notification")
    talk.typed("every morning", subtype="cron")
    talk.noted("chat_compression", {"compressedHistory": [{"role": "user", "parts": [{"text": "old"}]}]})
    talk.noted("custom_title", {"customTitle": "The lamp", "titleSource": "manual"})

    last = read_session(store(talk), "qwen", "a")

    assert said(talk) == ["User: Read @lamp.md please", "Assistant: I look.", "Assistant: It stands."]
    assert (last.progress.title, last.chunks[0].start_line, last.chunks[0].end_line) == ("The lamp", 2, 6)


def test_what_was_rewound_is_not_found_also_when_it_was_read_before(talk: Talk) -> None:
    talk.typed("one")
    before = talk.answered({"text": "re one"})
    talk.typed("two")
    talk.answered({"text": "re two"})
    first = read_session(store(talk), "qwen", "a")

    talk.noted("rewind", {"truncatedCount": 2}, parent=before)
    talk.typed("three")
    second = read_session(store(talk), "qwen", "a", known=first)

    assert "two" in first.chunks[0].text and second.keeps == 0
    assert said(talk) == ["User: one", "Assistant: re one", "User: three"]
    talk.noted("rewind", {}, parent=None)
    talk.typed("anew")
    assert said(talk) == ["User: anew"]


@pytest.mark.parametrize(
    "line", ["", "{", "[]", '{"uuid":"x","type":"user","message":{"parts":[1,{"text":2}]}}']
)
def test_a_broken_record_ends_nothing(talk: Talk, line: str) -> None:
    talk.typed("one")
    with talk.file.open("a") as stream:
        stream.write(f"{line}\n")
    talk.typed("two")

    assert said(talk) == ["User: one", "User: two"]
