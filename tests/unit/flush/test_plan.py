from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shared.flush import plan
from shared.flush.size import SessionSize
from shared.flush.state import ASKED, FAILED, NOTHING, STORED, SessionState

NOW = 1_750_000_000.0
LARGE = SessionSize(counted=180_000, cycle="two")


def reason(session: SessionState, *, now: float = NOW, grown_at: float = NOW, force: int = 0) -> str:
    return plan.reason_to_flush(session, threshold=176_000, force_bytes=force, grown_at=grown_at, now=now)


def test_a_session_is_flushed_when_it_crosses_its_threshold() -> None:
    assert reason(SessionState(size=SessionSize(counted=175_999))) == ""
    assert (
        reason(SessionState(size=SessionSize(counted=175_000, estimated=1_000))) == "176000 tokens of 176000"
    )


@pytest.mark.parametrize("outcome", [STORED, NOTHING])
def test_one_flush_in_a_cycle_and_again_in_the_very_next_one(outcome: str) -> None:
    settled = SessionState(size=LARGE, cycle="two", outcome=outcome, attempts=1, at=NOW - 9_999)

    assert reason(settled) == ""

    settled.size = SessionSize(counted=180_000, cycle="three")
    assert reason(settled)


def test_a_flush_that_failed_is_tried_three_times_and_then_not_again_in_this_cycle() -> None:
    failed = SessionState(size=LARGE, cycle="two", outcome=FAILED, attempts=1, at=NOW)

    assert reason(failed, now=NOW + 59, grown_at=NOW + 59) == ""
    assert reason(failed, now=NOW + 60, grown_at=NOW + 60)
    failed.attempts = 2
    assert reason(failed, now=NOW + 60, grown_at=NOW + 60) == ""
    assert reason(failed, now=NOW + 120, grown_at=NOW + 120)
    failed.attempts = 3
    assert reason(failed, now=NOW + 3_000, grown_at=NOW + 3_000) == ""


def test_a_request_that_was_lost_is_made_again() -> None:
    asked = SessionState(size=LARGE, cycle="two", outcome=ASKED, attempts=1, at=NOW)

    assert reason(asked, now=NOW + 899) == ""
    assert reason(asked, now=NOW + 900)


def test_a_session_that_is_over_is_left_alone() -> None:
    assert reason(SessionState(size=LARGE), grown_at=NOW - 3_601) == ""


def test_a_transcript_that_grew_by_so_many_bytes_is_flushed_whatever_its_tokens() -> None:
    big = SessionState(size=SessionSize(offset=3_000_000, compacted_at=900_000))

    assert reason(big, force=2_097_152).startswith("2100000 bytes")
    assert reason(big, force=0) == ""


def test_the_register_says_the_model_and_window_and_what_is_of_nobody(tmp_path: Path) -> None:
    content = {
        "agent:main:main": {"sessionId": "a", "model": "m", "contextTokens": 32_000},
        "agent:main:cron:daily": {"sessionId": "b", "contextTokens": "many"},
        "agent:main:odd": [],
    }
    (tmp_path / "sessions.json").write_text(json.dumps(content), encoding="utf-8")

    found = plan.registered(tmp_path)

    assert found["a.jsonl"] == plan.Registered(key="agent:main:main", model="m", window=32_000)
    assert not found["a.jsonl"].is_of_nobody
    assert found["b.jsonl"].is_of_nobody and found["b.jsonl"].window == 0


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "\0"])
def test_a_register_that_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "sessions.json").write_text(text, encoding="utf-8")

    assert plan.registered(tmp_path) == {}


def test_a_folder_that_was_copied_in_is_old_though_its_files_are_new() -> None:
    copied = SessionState(size=SessionSize(counted=180_000, last_at=NOW - 3_601))
    ahead = SessionState(size=SessionSize(counted=180_000, last_at=NOW + 9_999))

    assert reason(copied) == ""
    assert reason(ahead)


def test_a_reply_that_is_paid_for_is_written_before_anything_else_however_late() -> None:
    new_cycle = SessionSize(counted=180_000, cycle="three", compacted_at=7)
    waiting = SessionState(
        size=new_cycle, cycle="two", start=3, outcome=FAILED, attempts=9, reply="- x", at=NOW
    )

    assert reason(waiting, now=NOW + 3_599) == ""
    assert reason(waiting, now=NOW + 3_600, grown_at=0.0) == "an answer waits to be written"

    plan.ask(waiting, "it waits", NOW)
    assert (waiting.cycle, waiting.start, waiting.outcome, waiting.attempts) == ("two", 3, ASKED, 10)

    waiting.outcome, waiting.reply = STORED, ""
    plan.ask(waiting, reason(waiting), NOW)
    assert (waiting.cycle, waiting.start, waiting.attempts) == ("three", 7, 1)


def test_a_queue_that_is_away_uses_up_no_attempt() -> None:
    session = SessionState(size=LARGE)

    for hour in range(5):
        assert reason(session, now=NOW + hour, grown_at=NOW) or hour
        plan.ask(session, "large", NOW)
        plan.take_back(session, "Redis is away", NOW)

    assert session.attempts == 0 and reason(session, now=NOW + 60)


def test_what_is_given_up_is_known() -> None:
    assert plan.is_given_up(SessionState(outcome=FAILED, attempts=3), NOW)
    assert plan.is_given_up(SessionState(outcome=ASKED, attempts=1, at=NOW - 900), NOW)
    assert not plan.is_given_up(SessionState(outcome=ASKED, attempts=3, at=NOW), NOW)
    assert not plan.is_given_up(SessionState(outcome=STORED, attempts=3), NOW)
    assert not plan.is_given_up(SessionState(), NOW)


def test_the_register_names_files_and_providers_and_is_no_link_and_no_pipe(tmp_path: Path) -> None:
    content = {
        "agent:main:topic": {
            "sessionId": "a",
            "sessionFile": "/home/ada/sessions/a-topic-7.jsonl",
            "model": "opus",
            "modelProvider": "anthropic",
        },
        "odd": {"sessionId": 5, "sessionFile": None, "model": ["x"]},
    }
    (tmp_path / "real.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "sessions.json").symlink_to("real.json")
    assert plan.registered(tmp_path) == {}

    (tmp_path / "sessions.json").unlink()
    os.mkfifo(tmp_path / "sessions.json")
    assert plan.registered(tmp_path) == {}

    (tmp_path / "sessions.json").unlink()
    (tmp_path / "real.json").rename(tmp_path / "sessions.json")
    assert plan.registered(tmp_path) == {
        "a-topic-7.jsonl": plan.Registered(key="agent:main:topic", model="anthropic/opus")
    }
