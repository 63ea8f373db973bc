"""Conversations of an export of ChatGPT: the thread that is shown, and what of it counts."""

from typing import Any

import pytest

from memline.shared.sources.transcripts.chatgpt import FORMAT
from tests.support.chat_exports import T0, gpt, gpt_said, node


def said(record: dict[str, Any]) -> list[tuple[str, str]]:
    assert FORMAT.conversation
    return [(each.role, each.text) for each in FORMAT.conversation(record).said]


def of_message(message: dict[str, Any]) -> list[tuple[str, str]]:
    return said(gpt("c", current_node="n", mapping={"n": node("n", None, message)}))


def test_a_conversation_has_its_id_title_times_and_messages() -> None:
    record = gpt("c-1", ("user", "Which dinghy?"), ("assistant", "The red one."), title="Boats")

    assert FORMAT.conversation
    found = FORMAT.conversation(record)

    assert (found.id, found.title, found.created, found.updated) == ("c-1", "Boats", T0, T0 + 2)
    assert [(each.role, each.text, each.time) for each in found.said] == [
        ("user", "Which dinghy?", T0),
        ("assistant", "The red one.", T0),
    ]


def test_edits_and_answers_that_were_left_are_not_read() -> None:
    mapping = {
        "r": node("r", None),
        "old": node("old", "r", gpt_said("user", "first wording")),
        "o2": node("o2", "old", gpt_said("assistant", "answer to the first wording")),
        "new": node("new", "r", gpt_said("user", "second wording")),
        "a1": node("a1", "new", gpt_said("assistant", "an answer that was regenerated")),
        "a2": node("a2", "new", gpt_said("assistant", "the answer that is shown")),
    }

    shown = said(gpt("c", mapping=mapping, current_node="a2"))

    assert shown == [("user", "second wording"), ("assistant", "the answer that is shown")]


@pytest.mark.parametrize("current", [None, "gone"])
def test_without_a_node_that_is_shown_the_thread_written_to_last_is_read(current: str | None) -> None:
    mapping = {
        "r": node("r", None, children=["a", "b"]),
        "a": node("a", "r", gpt_said("user", "earlier", create_time=T0)),
        "b": node("b", "r", gpt_said("user", "later", create_time=T0 + 9)),
    }

    assert said(gpt("c", mapping=mapping, current_node=current)) == [("user", "later")]


def test_a_circle_and_a_parent_that_is_missing_end_the_thread() -> None:
    circle = {
        "a": node("a", "b", gpt_said("user", "one")),
        "b": node("b", "a", gpt_said("assistant", "two")),
    }
    orphan = {"b": node("b", "gone", gpt_said("assistant", "two"))}

    assert said(gpt("c", mapping=circle, current_node="b")) == [("user", "one"), ("assistant", "two")]
    assert said(gpt("c", mapping=orphan, current_node="b")) == [("assistant", "two")]


@pytest.mark.parametrize(
    "message",
    [
        gpt_said("system", "You are ChatGPT."),
        gpt_said("tool", "result of a search"),
        gpt_said("assistant", '{"query": "boats"}', recipient="web.run"),
        gpt_said("assistant", "print(1)", kind="code"),
        gpt_said("assistant", "1", kind="execution_output"),
        gpt_said("assistant", "a page", kind="tether_quote"),
        gpt_said("assistant", "let me think", kind="thoughts"),
        gpt_said("assistant", "Thought for 5 s", kind="reasoning_recap"),
        gpt_said("user", "about me", kind="user_editable_context"),
        gpt_said("assistant", "let me think", channel="analysis"),
        gpt_said("assistant", "hidden", weight=0.0),
        gpt_said("user", "hidden", metadata={"is_visually_hidden_from_conversation": True}),
        gpt_said("assistant", '{"name": "a canvas"}', kind="code", recipient="canmore.create_textdoc"),
        gpt_said("user", "  "),
        gpt_said("user", {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}),
        {"author": "user", "content": [], "metadata": 3},
    ],
    ids=lambda message: str(message.get("content"))[:60],
)
def test_what_was_not_said_to_be_read_is_left_out(message: dict[str, Any]) -> None:
    assert of_message(message) == []


@pytest.mark.parametrize("channel", [None, "final", "commentary"])
def test_what_the_model_said_to_the_person_counts_on_every_channel_but_its_thoughts(
    channel: str | None,
) -> None:
    assert of_message(gpt_said("assistant", "Hello.", channel=channel)) == [("assistant", "Hello.")]


def test_attachments_are_named_and_speech_is_text() -> None:
    files = {"attachments": [{"id": "f", "name": "boats.pdf"}, {"name": "boats.pdf"}, {"name": None}, 3]}
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    spoken = {"content_type": "audio_transcription", "text": "what I said"}

    assert of_message(gpt_said("user", image, "What is this?", kind="multimodal_text", metadata=files)) == [
        ("user", "What is this?\nAttached: boats.pdf")
    ]
    assert of_message(gpt_said("user", spoken, {"content_type": "audio_asset"}, kind="multimodal_text")) == [
        ("user", "what I said")
    ]
    assert of_message(gpt_said("user", "", metadata=files)) == [("user", "Attached: boats.pdf")]


@pytest.mark.parametrize(
    "record", [{}, {"id": "c"}, {"id": "c", "mapping": []}, {"mapping": {}}, {"id": 3, "mapping": {}}]
)
def test_what_is_no_conversation_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it has no id and mapping"):
        said(record)


def test_a_conversation_without_messages_is_one() -> None:
    assert said({"id": "c", "mapping": {}, "current_node": None}) == []
    assert said({"id": "c", "mapping": {"a": 3}, "current_node": "a"}) == []
