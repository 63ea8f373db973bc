"""Lines of a transcript: what was said, by whom and when; everything else is passed over."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memline.shared.sources.transcripts.facts import Counts, TranscriptContext
from memline.shared.sources.transcripts.transcript_lines import Message, TranscriptParser

NOW = 1_770_000_000.0  # 2 February 2026


def parser() -> TranscriptParser:
    return TranscriptParser(TranscriptContext(), Counts(), now=NOW)


def line(role: str, content: Any, **more: Any) -> bytes:
    record = {"type": "message", "timestamp": "2026-01-05T10:00:00.000Z", **more}
    return json.dumps({**record, "message": {"role": role, "content": content}}).encode()


def said(role: str, content: Any, **more: Any) -> str | None:
    message = parser().read_line(line(role, content, **more))
    return message.text if message else None


def test_messages_of_user_and_assistant_are_read_with_their_speaker() -> None:
    reader = parser()

    assert reader.read_line(line("user", "Hello  there,\n\n  friend")) == Message(
        speaker="User", text="Hello there, friend"
    )
    assert reader.read_line(
        line("assistant", [{"type": "text", "text": "Hi"}, {"type": "text", "text": "you"}])
    ) == (Message(speaker="Assistant", text="Hi you"))
    assert (reader.counts.messages, reader.counts.first_day, reader.counts.last_day) == (
        2,
        "2026-01-05",
        "2026-01-05",
    )


def test_characters_without_width_hide_no_secret() -> None:
    assert said("user", "pass\u200bword: hunter\ufeff2\xad2") == "password: ***"
    assert said("user", "a family 👨\u200d👩\u200d👧") == "a family 👨\u200d👩\u200d👧"


def test_thinking_tools_and_images_are_left_out() -> None:
    blocks = [
        {"type": "thinking", "thinking": "secret plan"},
        {"type": "text", "text": "the answer"},
        {"type": "toolCall", "name": "exec", "arguments": {"command": "ls"}},
        {"type": "image", "data": "abcd"},
        "a string",
        None,
        {"type": "text", "text": 7},
        {"type": "text"},
    ]

    assert said("assistant", blocks) == "the answer"
    assert said("assistant", "<think>plan</think><final>the answer</final>") == "the answer"
    assert said("toolResult", [{"type": "text", "text": "output of a tool"}]) is None
    assert said("system", "you are an agent") is None
    assert said("user", [{"type": "image"}]) is None


@pytest.mark.parametrize(
    "record",
    [
        {"type": "session", "version": 3, "id": "a"},
        {"type": "model_change", "modelId": "m"},
        {"type": "compaction", "summary": "role user said"},
        {"type": "custom", "data": {"role": "user", "content": "x"}},
        {"type": "message"},
        {"type": "message", "message": None},
        {"type": "message", "message": ["user"]},
        {"type": "message", "message": {"role": "user"}},
        {"type": "message", "message": {"role": ["user"], "content": "x"}},
        {"type": "message", "message": {"role": "user", "content": {"type": "text", "text": "x"}}},
        {"type": ["message"], "message": {"role": "user", "content": "x"}},
        {"message": {"role": "user", "content": "x"}},
        [{"type": "message", "message": {"role": "user", "content": "x"}}],
        "role user",
        12,
        None,
    ],
)
def test_records_of_other_kinds_and_shapes_say_nothing(record: Any) -> None:
    assert parser().read_line(json.dumps(record).encode()) is None


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type":"message","message":{"role":"user","content":"cut of',
        b'{"role":"user"}}}}',
        b"\x00\x00\x00",
        b"\xff\xfe\x00\x01",
        b"not json",
        b'{"type":"message","message":{"role":"user","content":' + b"[" * 100_000,
        b'{"role": "user", "n": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_line_that_is_no_record_is_passed_over(bad: bytes) -> None:
    reader = parser()

    assert reader.read_line(bad) is None
    assert reader.read_line(line("user", "still here")) == Message(speaker="User", text="still here")


def test_broken_lines_are_counted_and_blank_ones_are_not() -> None:
    reader = parser()

    for each in (b"", b"  \r\n", b"\x00\x00", b"{half", b"nonsense\n"):
        reader.read_line(each)

    assert reader.counts.broken == 2


def test_nul_bytes_control_characters_and_lone_surrogates_are_taken_out() -> None:
    assert parser().read_line(
        b'{"type":"message","message":{"role":"user","content":"a\x00b\\u0000c \\ud83d d \\u0002e"}}'
    ) == (Message(speaker="User", text="abc d e"))
    assert parser().read_line(
        b'\xef\xbb\xbf{"type":"message","message":{"role":"user","content":"\xff ok"}}'
    ) == Message(speaker="User", text="\ufffd ok")


@pytest.mark.parametrize(
    ("stamp", "day"),
    [
        ("2026-01-05T23:30:00.000Z", "2026-01-05"),
        ("2026-01-05T23:30:00-05:00", "2026-01-06"),
        ("2026-01-05", "2026-01-05"),
        (1_767_571_200, "2026-01-05"),
        (1_767_571_200_000, "2026-01-05"),
        ("9999-12-31T00:00:00Z", ""),
        ("2027-01-05T00:00:00Z", ""),
        (1e308, ""),
        (float("nan"), ""),
        (10**400, ""),
        (-5, ""),
        (True, ""),
        ("yesterday", ""),
        ("", ""),
        (None, ""),
        ({"seconds": 1}, ""),
    ],
)
def test_the_day_is_that_of_the_record_unless_it_is_none_or_in_the_future(stamp: Any, day: str) -> None:
    reader = parser()
    reader.read_line(line("user", "hello", timestamp=stamp))

    assert (reader.context.day, reader.counts.first_day) == (day, day)


def test_a_session_is_called_by_its_name_or_by_the_first_words_of_the_user() -> None:
    reader = parser()
    reader.read_line(line("assistant", "Welcome."))
    reader.read_line(
        line(
            "user", "Please plan the rollout of the new gateway for all customers in Europe, starting in May."
        )
    )
    assert (
        reader.context.title
        == "Please plan the rollout of the new gateway for all customers in Europe, starting …"
    )

    reader.read_line(b'{"type":"session_info","name":"Gateway  rollout, password=hunter22"}')
    reader.read_line(line("user", "Another question"))
    assert reader.context.title == "Gateway rollout, password=***"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "message", "role", "content", "text", "timestamp", "usage", "name", "provenance"]
            ),
            inner | st.sampled_from(["message", "user", "assistant", "text", "session_info", "compaction"]),
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(st.lists(JSON.map(lambda record: json.dumps(record).encode()) | st.binary(max_size=60), max_size=8))
def test_no_line_raises(lines: list[bytes]) -> None:
    reader = parser()

    for each in lines:
        message = reader.read_line(each)
        assert message is None or (message.text and "\n" not in message.text and message.text.encode())


@pytest.mark.parametrize(
    "record",
    [
        {"type": ["message"], "message": {"role": "user", "content": "no"}},
        {"type": {"a": 1}, "message": {"role": "assistant", "content": "no"}},
        {"type": "message", "message": [{"role": "user"}]},
        {"type": "message", "message": {"role": ["user"], "content": '"role":"user"'}},
        {
            "type": "message",
            "message": {"role": "user", "content": [{"type": ["text"], "text": "no"}, 1, None]},
        },
        {"type": "message", "message": {"role": "user", "content": {"text": "no"}, "provenance": ["x"]}},
        {
            "type": "message",
            "timestamp": [1],
            "message": {"role": "user", "content": 5, "timestamp": {"a": 1}},
        },
        {"type": "session_info", "name": ["x"], "timestamp": 10**400},
    ],
)
def test_one_odd_record_is_skipped_and_the_next_is_read(record: dict[str, Any]) -> None:
    reader = parser()

    assert reader.read_line(json.dumps(record).encode()) is None
    assert reader.read_line(line("user", "Go on")) == Message(speaker="User", text="Go on")
