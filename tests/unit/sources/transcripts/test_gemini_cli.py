"""Sessions of Gemini CLI: which belong to a workspace, and which of their messages count."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from memline.shared.sources.transcripts.formats import Transcripts
from memline.shared.sources.transcripts.stores import TranscriptStore
from tests.support.transcripts import names_in, reading, said_in, store_of

NAME = "session-2026-11-23T03-27-0a1b2c3d"
AT = "2026-11-23T03:27:13.592Z"


def message(identity: str, kind: str, content: object, **more: Any) -> str:
    return json.dumps({"id": identity, "timestamp": AT, "type": kind, "content": content, **more}) + "\n"


def text(words: str) -> list[dict[str, str]]:
    return [{"text": words}]


HEAD = json.dumps({"sessionId": "s", "projectHash": "h", "startTime": AT, "kind": "main"}) + "\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    project(tmp_path, "proj", "/w/proj")
    return tmp_path


def project(home: Path, name: str, path: str | None) -> Path:
    folder = home / "tmp" / name / "chats"
    folder.mkdir(parents=True)
    if path is not None:
        (folder.parent / ".project_root").write_text(path)
    return folder


def session(home: Path, *lines: str, project: str = "proj", name: str = f"{NAME}.jsonl") -> Path:
    file = home / "tmp" / project / "chats" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines))
    return file


def store(home: Path) -> TranscriptStore:
    return store_of("gemini", home)


def said(home: Path) -> list[str]:
    return said_in(store(home), "gemini", NAME)


def test_the_path_beside_the_chats_or_its_hash_decides(home: Path) -> None:
    project(home, "sub", "/w/proj/sub\n")
    project(home, "other", "/w/project")
    hashed = hashlib.sha256(b"/w/proj").hexdigest()
    project(home, hashed, None)
    project(home, "0" * 64, None)
    for name in ("proj", "sub", "other", hashed, "0" * 64):
        session(home, HEAD, project=name, name=f"session-of-{name[:5]}.jsonl")
    session(home, HEAD, project="proj/chats/parent", name="session-child.jsonl")
    for noise in ("session-a.jsonl.unreadable-1", "session-a.jsonl.tmp-1", "notes.jsonl"):
        session(home, HEAD, name=noise)

    assert sorted(names_in(store(home))) == sorted(
        f"session-of-{each}" for each in ("proj", "sub", hashed[:5])
    )


def test_what_a_person_typed_and_what_was_answered(home: Path) -> None:
    session(
        home,
        HEAD,
        message("a", "user", text("<session_context>today is Monday</session_context>")),
        message("b", "info", "update available"),
        message("c", "user", text("Read @lamp.md\n--- Content from referenced files ---\nsecret lamp")),
        message("d", "user", text("Look at it\n\nthe whole file"), displayContent=text("Look at it")),
        message(
            "e", "gemini", "", toolCalls=[{"name": "read", "result": "lamp"}], thoughts=[{"subject": "x"}]
        ),
        message("f", "user", [{"functionResponse": {"name": "read", "response": {"output": "lamp"}}}]),
        message("g", "gemini", "It stands.", thoughts=[{"subject": "hm", "description": "no"}]),
        json.dumps({"$set": {"lastUpdated": AT, "messages": [{"id": "z", "type": "user", "content": "old"}]}})
        + "\n",
    )

    assert said(home) == ["User: Read @lamp.md", "User: Look at it", "Assistant: It stands."]


def test_a_message_written_again_replaces_the_first(home: Path) -> None:
    file = session(home, HEAD, message("a", "user", "hello"), message("b", "gemini", "I will"))
    with file.open("a") as stream:
        stream.write(message("b", "gemini", "I will look.", tokens={"total": 3}))

    second = reading(store(home), "gemini", NAME)

    assert [chunk.text for chunk in second.chunks] == ["User: hello\nAssistant: I will look."]
    assert second.chunks[0].end_line == 4


@pytest.mark.parametrize(
    ("target", "left"),
    [
        ("c", ["User: one", "Assistant: re one"]),
        ("d", ["User: one", "Assistant: re one", "User: two"]),
        ("?", []),
    ],
)
def test_what_was_rewound_is_not_found(home: Path, target: str, left: list[str]) -> None:
    session(
        home,
        HEAD,
        message("a", "user", "one"),
        message("b", "gemini", "re one"),
        message("c", "user", "two"),
        message("d", "gemini", "re two"),
        json.dumps({"$rewindTo": target}) + "\n",
        message("e", "user", "three"),
    )

    assert said(home) == [*left, "User: three"]


def test_what_a_compression_replaced_stays(home: Path) -> None:
    checkpoint = {"$set": {"messages": [{"id": "s", "type": "user", "content": text("a summary")}]}}
    session(
        home, HEAD, message("a", "user", "one"), json.dumps(checkpoint) + "\n", message("b", "user", "two")
    )

    assert said(home) == ["User: one", "User: two"]


def test_a_document_of_an_older_version_is_read_until_it_is_resumed(home: Path) -> None:
    messages = [
        {"id": "a", "timestamp": AT, "type": "user", "content": "one"},
        {"id": "b", "timestamp": AT, "type": "gemini", "content": "two", "toolCalls": [{"result": "x" * 99}]},
    ]
    document = {"sessionId": "s", "projectHash": "h", "messages": messages}
    session(home, json.dumps(document, indent=2), name=f"{NAME}.json")
    alone = names_in(store(home)), said(home)
    watched = store(home).locate(str(home / "tmp/proj/chats" / f"{NAME}.json"))
    session(home, HEAD, *(json.dumps(each) + "\n" for each in messages), message("c", "user", "three"))

    assert alone == ([NAME], ["User: one", "Assistant: two"])
    assert watched is not None
    assert watched.path == f"sessions/gemini/{NAME}.jsonl"
    assert names_in(store(home)) == [NAME]
    assert said(home) == ["User: one", "Assistant: two", "User: three"]


def test_a_session_goes_on_in_the_folder_to_which_the_client_copied_it(home: Path) -> None:
    hashed = hashlib.sha256(b"/w/proj").hexdigest()
    document = {"sessionId": "s", "messages": [{"id": "a", "type": "user", "content": "one"}]}
    session(home, json.dumps(document), project=hashed, name=f"{NAME}.json")
    session(home, HEAD, message("a", "user", "one"), message("b", "user", "two"), project="shop")
    (home / "tmp/shop/.project_root").write_text("/w/proj")
    listed = {file.path: file.absolute for file in Transcripts([store(home)]).discover().files}

    assert said(home) == ["User: one", "User: two"]
    assert listed == {f"sessions/gemini/{NAME}.jsonl": str(home / f"tmp/shop/chats/{NAME}.jsonl")}


def test_a_document_that_cannot_be_read_is_named_with_its_reason(home: Path) -> None:
    target = session(home, "{}", name="notes.json")
    (target.parent / f"{NAME}.json").symlink_to(target)
    (file,) = store(home).discover().files

    assert file.problem is not None and file.problem.outcome == "symlink"
    assert store(home).problem_at(file.path) == file.problem


@pytest.mark.parametrize(
    "document", ["", "[]", "{", '{"messages": 3}', '{"messages": [1, null, {"type": 3}]}']
)
def test_a_document_that_is_none_ends_nothing(home: Path, document: str) -> None:
    session(home, document, name=f"{NAME}.json")

    assert reading(store(home), "gemini", NAME).chunks == ()
