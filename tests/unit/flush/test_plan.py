from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.flush import plan
from shared.flush.size import SessionSize
from shared.flush.state import ASKED, FAILED, NOTHING, SKIPPED, STORED, SessionState

NOW = 1_750_000_000.0
LARGE = SessionSize(counted=180_000, compactions=2)


def reason(session: SessionState, *, now: float = NOW, grown_at: float = NOW, force: int = 0) -> str:
    return plan.reason_to_flush(session, threshold=176_000, force_bytes=force, grown_at=grown_at, now=now)


def test_a_session_is_flushed_when_it_crosses_its_threshold() -> None:
    assert reason(SessionState(size=SessionSize(counted=175_999))) == ""
    assert (
        reason(SessionState(size=SessionSize(counted=175_000, estimated=1_000))) == "176000 tokens of 176000"
    )


@pytest.mark.parametrize("outcome", [STORED, NOTHING, SKIPPED])
def test_one_flush_in_a_cycle_and_again_in_the_very_next_one(outcome: str) -> None:
    settled = SessionState(size=LARGE, cycle=2, outcome=outcome, attempts=1, at=NOW - 9_999)

    assert reason(settled) == ""

    settled.size = SessionSize(counted=180_000, compactions=3)
    assert reason(settled)


def test_a_flush_that_failed_is_tried_three_times_and_then_not_again_in_this_cycle() -> None:
    failed = SessionState(size=LARGE, cycle=2, outcome=FAILED, attempts=1, at=NOW)

    assert reason(failed, now=NOW + 59, grown_at=NOW + 59) == ""
    assert reason(failed, now=NOW + 60, grown_at=NOW + 60)
    failed.attempts = 2
    assert reason(failed, now=NOW + 60, grown_at=NOW + 60) == ""
    assert reason(failed, now=NOW + 120, grown_at=NOW + 120)
    failed.attempts = 3
    assert reason(failed, now=NOW + 3_000, grown_at=NOW + 3_000) == ""


def test_a_request_that_was_lost_is_made_again() -> None:
    asked = SessionState(size=LARGE, cycle=2, outcome=ASKED, attempts=1, at=NOW)

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
