"""Conversations of an export of Claude: the thread that is shown, and what of it counts."""

from typing import Any

import pytest

from memline.shared.sources.transcripts.claude_ai import FORMAT
from tests.support.chat_exports import claude, claude_said


def said(record: dict[str, Any]) -> list[tuple[str, str]]:
    assert FORMAT.conversation
    return [(each.role, each.text) for each in FORMAT.conversation(record).said]


def test_a_conversation_has_its_id_title_times_and_messages() -> None:
    record = claude(
        "c-1", claude_said("human", "Which tea?"), claude_said("assistant", "Green."), title="Tea"
    )

    assert FORMAT.conversation
    found = FORMAT.conversation(record)

    assert (found.id, found.title) == ("c-1", "Tea")
    assert (found.created, found.updated) == ("2026-10-01T08:00:00.000000Z", "2026-10-01T09:00:00.000000Z")
    assert [(each.role, each.text) for each in found.said] == [
        ("user", "Which tea?"),
        ("assistant", "Green."),
    ]
    assert found.said[0].time == "2026-10-01T08:00:00.000000Z"


def test_only_text_blocks_are_read_and_text_where_there_are_no_blocks() -> None:
    thinking = {"type": "thinking", "thinking": "let me see"}
    tool = {"type": "tool_use", "name": "search", "input": {}}
    result = {"type": "tool_result", "content": [{"type": "text", "text": "a page"}]}

    assert said(
        claude(
            "c",
            claude_said("assistant", thinking, "First.", tool, result, "Then."),
            claude_said("assistant", tool),
            claude_said("human", text="of an older export", content=[]),
            claude_said("human", text="of a still older one", content=None),
            claude_said("system", "no one said this"),
        )
    ) == [
        ("assistant", "First.\nThen."),
        ("user", "of an older export"),
        ("user", "of a still older one"),
    ]


def test_attachments_and_files_are_named_and_their_content_is_left_out() -> None:
    attached = [{"file_name": "list.txt", "extracted_content": "a long list"}]
    message = claude_said("human", "See this.", attachments=attached, files=[{"file_name": "a.png"}, 3])

    assert said(claude("c", message)) == [("user", "See this.\nAttached: list.txt, a.png")]


def test_the_thread_that_ends_last_is_shown_where_messages_name_the_one_above() -> None:
    root = "00000000-0000-4000-8000-000000000000"
    messages = [
        claude_said("human", "first wording", uuid="1", parent_message_uuid=root),
        claude_said("assistant", "its answer", uuid="2", parent_message_uuid="1"),
        claude_said("human", "second wording", uuid="3", parent_message_uuid=root),
        claude_said("assistant", "the other answer", uuid="4", parent_message_uuid="3"),
    ]

    assert said(claude("c", *messages)) == [("user", "second wording"), ("assistant", "the other answer")]
    assert said(claude("c", *messages, current_leaf_message_uuid="2")) == [
        ("user", "first wording"),
        ("assistant", "its answer"),
    ]


def test_messages_without_a_link_are_all_shown() -> None:
    old = claude_said("human", "from before there were links", uuid="0")
    new = [
        claude_said("human", "one", uuid="1", parent_message_uuid="0"),
        claude_said("human", "left", uuid="2", parent_message_uuid="0"),
        claude_said("assistant", "two", uuid="3", parent_message_uuid="1"),
    ]

    assert [text for _, text in said(claude("c", old, *new))] == [
        "from before there were links",
        "one",
        "two",
    ]
    assert [text for _, text in said(claude("c", old, claude_said("human", "more")))] == [
        "from before there were links",
        "more",
    ]


@pytest.mark.parametrize(
    "record", [{}, {"uuid": "c"}, {"uuid": "c", "chat_messages": {}}, {"chat_messages": []}]
)
def test_what_is_no_conversation_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it has no uuid and chat_messages"):
        said(record)


def test_a_conversation_of_anything_is_read() -> None:
    assert said({"uuid": "c", "chat_messages": [3, {}, {"sender": "human", "files": 3}]}) == []
