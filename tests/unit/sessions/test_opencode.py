"""Sessions of opencode: rows of its database that belong to a workspace, and what of them counts."""

import hashlib
from pathlib import Path

import pytest

from tests.support.opencode import Desk
from tests.support.transcripts import names_in, reading, said_in, store_of


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path / "opencode.db")
    yield made
    made.rows.close()


def store(desk):
    return store_of("opencode", desk.database)


def said(desk, name="ses_a"):
    return said_in(store(desk), "opencode", name)


def test_sessions_of_the_workspace_and_below_it_are_found(desk):
    desk.session("ses_a")
    desk.session("ses_b", "/w/proj/sub")
    desk.session("ses_c", "/w/project")
    desk.session("ses_d", parent_id="ses_a")
    desk.session("../ses_e")

    assert names_in(store(desk)) == ["ses_a", "ses_b"]


def test_what_a_person_typed_and_what_was_answered(desk):
    desk.session("ses_a", title="The lamp")
    desk.say(
        "ses_a",
        "user",
        "Where is it?",
        {"type": "text", "text": "the whole file", "synthetic": True},
        {"type": "text", "text": "a draft", "ignored": True},
        {"type": "file", "filename": "a.png", "url": "data:image/png;base64,AAAA"},
    )
    desk.say(
        "ses_a",
        "assistant",
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm"},
        "I look.",
        {"type": "tool", "tool": "read", "state": {"output": "lamp"}},
        "At the window.",
    )
    desk.say("ses_a", "assistant", "a summary", summary=True)
    desk.say("ses_a", "assistant", "another", mode="compaction")

    last = reading(store(desk), "opencode", "ses_a")

    assert said(desk) == ["User: Where is it?", "Assistant: I look. At the window."]
    assert last.chunks[0].heading.endswith(" > The lamp")
    assert (last.chunks[0].start_line, last.chunks[0].end_line, last.lines) == (1, 2, 4)


def test_what_was_reverted_is_not_found_and_comes_back_when_that_is_undone(desk):
    desk.session("ses_a")
    desk.say("ses_a", "user", "one")
    second = desk.say("ses_a", "assistant", "two", "three")
    desk.say("ses_a", "user", "four")

    desk.revert("ses_a", {"messageID": second})
    whole = reading(store(desk), "opencode", "ses_a")
    desk.revert("ses_a", {"messageID": second, "partID": "prt_00021"})
    partly = said(desk)
    desk.revert("ses_a", None)

    assert [chunk.text for chunk in whole.chunks] == ["User: one"]
    assert partly == ["User: one", "Assistant: two"]
    assert said(desk) == ["User: one", "Assistant: two three", "User: four"]


def test_no_byte_of_the_database_changes_while_opencode_writes(desk):
    desk.session("ses_a")
    desk.say("ses_a", "user", "one")
    files = [desk.database, Path(f"{desk.database}-wal")]
    before = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]

    assert said(desk) == ["User: one"]
    assert [hashlib.sha256(file.read_bytes()).hexdigest() for file in files] == before


@pytest.mark.parametrize(
    "data", ["", "{", "[]", "null", '{"type": "text"}', '{"type": "text", "text": 3}', None]
)
def test_a_broken_part_is_left_out(desk, data):
    desk.session("ses_a")
    desk.say("ses_a", "user", "one")
    desk.add_part("msg_0001", "ses_a", data)

    assert said(desk) == ["User: one"]


def test_a_file_that_is_no_database_is_an_issue(tmp_path):
    database = tmp_path / "opencode.db"
    database.write_bytes(b"not a database" * 200)

    found = store_of("opencode", database).discover()

    assert "sessions of opencode not readable" in found.issues[0]
