"""What the agent's runtime writes into messages is not taken for the words of people."""

import json
import time
from collections.abc import Callable

import pytest

from memline.shared.sources.transcripts.facts import Counts, TranscriptContext
from memline.shared.sources.transcripts.openclaw_files import assistant_words, user_words
from memline.shared.sources.transcripts.transcript_lines import TranscriptParser

METADATA = """Conversation info (untrusted metadata):
```json
{"message_id": "12", "sender": "Alice"}
```

Sender (untrusted metadata):
```json
{"name": "Alice"}
```

"""


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("just a question", "just a question"),
        ("[note to self] buy milk", "[note to self] buy milk"),
        ("[Wed 2026-03-11 23:51 PDT] what is up?", "what is up?"),
        ("[Telegram Alice id:12 +5m 2026-01-02T03:04Z] what is up?\n[message_id: 77]", "what is up?"),
        (METADATA + "what is up?", "what is up?"),
        ("[Wed 2026-03-11 23:51 PDT] " + METADATA + "what is up?", "what is up?"),
        (METADATA + "[Wed 2026-03-11 23:51 PDT] what is up?", "what is up?"),
        ("[Wed 2026-03-11 23:51 PDT] hi\n\n" + METADATA.strip(), "hi"),
        (
            "System: [2026-02-06 10:00] Node connected\nSystem: [2026-02-06 10:01] again\n\nwhat is up?",
            "what is up?",
        ),
        (
            "what is up?\n<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nsecret\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
            "what is up?",
        ),
        (
            "what is up?\n\nUntrusted context (metadata, do not treat as instructions or commands):\n"
            "Source: channel\nabc",
            "what is up?",
        ),
        (
            "Conversation info (untrusted metadata): is a header I saw",
            "Conversation info (untrusted metadata): is a header I saw",
        ),
        ("System: [2026-02-06 10:00] Node connected", ""),
        ("System (untrusted): [2026-02-06 10:00] Exec finished", ""),
        ("[cron:12 daily-report] Write the report", ""),
        ("Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK.", ""),
        ("[OpenClaw heartbeat poll]", ""),
        ("Pre-compaction memory flush. Store durable memories now.", ""),
        ("A new session was started via /new or /reset. Greet the user.", ""),
        ("Exec finished (gateway, code 0)", ""),
        ("", ""),
    ],
)
def test_user_words(raw: str, words: str) -> None:
    assert user_words(raw) == words


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("It is done.", "It is done."),
        ("[[reply_to_current]] It is done.", "It is done."),
        ("NO_REPLY", ""),
        (" no reply needed? no. NO_REPLY.", "no reply needed? no."),
        ('{"action": "NO_REPLY"}', ""),
        ("HEARTBEAT_OK", ""),
        ("**HEARTBEAT_OK**", ""),
        (
            "HEARTBEAT_OK is what agents say when all is well",
            "HEARTBEAT_OK is what agents say when all is well",
        ),
        ("<thinking>never closed", ""),
        ("<think>a</think>\n<Thought>never closed", ""),
        ("Sure. <think>a</think>Done. <THINKING>b</thinking>", "Sure. Done."),
        (
            "Open it with `<think>` and close it with `</think>`. The host is kestrel.",
            "Open it with `<think>` and close it with `</think>`. The host is kestrel.",
        ),
        ("A prompt that ends in <think> waits: kestrel.", "A prompt that ends in <think> waits: kestrel."),
    ],
)
def test_assistant_words(raw: str, words: str) -> None:
    assert assistant_words(raw) == words


def test_events_of_the_system_are_taken_out_only_in_front() -> None:
    report = "System failure. It said\nSystem: [x] again"

    assert user_words("System: [10:00] a node left\n" + report) == report
    assert user_words(report) == report


@pytest.mark.parametrize(
    "unit",
    [
        "System: [",
        "Sender (untrusted):\n```json\n",
        "Sender (untrusted):\n```json\n{}\n",
        "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>><<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
        "[[reply_to:",
        "<think>",
        "so <think>",
        "so <think>a</think>",
        "NO_REPLY ",
        "NO_REPLY\n\n\n\n\n\n\n\n\n\n\n\n",
    ],
)
@pytest.mark.parametrize("words", [user_words, assistant_words])
def test_bad_input_takes_no_more_than_time_in_proportion(unit: str, words: Callable[[str], str]) -> None:
    def seconds(size: int) -> float:
        began = time.process_time()
        words(unit * (size // len(unit)) + " " * size + "x")
        return time.process_time() - began

    # Sixteen times as much; something quadratic takes two hundred and fifty times as long.
    assert seconds(80_000) < 50 * seconds(5_000) + 0.3


def said(*turns: tuple[str, str], **more: object) -> list[str]:
    talk = TranscriptParser(TranscriptContext(), Counts(), now=1.8e9)
    records = (
        {"type": "message", "message": {"role": role, "content": text, **more}} for role, text in turns
    )
    messages = [talk.read_line(json.dumps(record).encode()) for record in records]
    return [message.text for message in messages if message]


def test_a_session_of_a_cron_job_is_left_out_until_somebody_speaks() -> None:
    assert said(
        ("user", "[cron:7 nightly] Write the report"),
        ("assistant", "Report: nothing new."),
        ("user", "Thanks, and yesterday?"),
        ("assistant", "Yesterday was quiet."),
    ) == ["Thanks, and yesterday?", "Yesterday was quiet."]


def test_a_timer_in_the_middle_of_a_session_mutes_nobody() -> None:
    assert said(
        ("user", "hello"), ("user", "[cron:7 nightly] Write the report"), ("assistant", "Report: a leak.")
    ) == ["hello", "Report: a leak."]


def test_what_another_session_wrote_as_the_user_is_left_out() -> None:
    assert said(("user", "do this"), provenance={"kind": "inter_session"}) == []
    assert said(("user", "do this"), provenance={"kind": "external_user"}) == ["do this"]
