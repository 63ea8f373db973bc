import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memline.shared.config.schema import AgentSettings, Compaction, MemoryFlush, Sessions
from memline.shared.flush import flush_plan
from memline.shared.flush.state import ASKED, FAILED, NOTHING, STORED, SessionState
from memline.shared.flush.transcript import SessionSize

NOW = 1_750_000_000.0
LARGE = SessionSize(counted=180_000, cycle="two")


def reason(session: SessionState, *, now: float = NOW, grown_at: float = NOW, force: int = 0) -> str:
    return flush_plan.reason_to_flush(
        session, threshold=176_000, force_bytes=force, grown_at=grown_at, now=now
    )


def test_a_session_is_flushed_when_it_crosses_its_threshold() -> None:
    assert reason(SessionState(size=SessionSize(counted=175_999))) == ""
    assert (
        reason(SessionState(size=SessionSize(counted=175_000, estimated=1_000)))
        == "176,000 tokens of 176,000"
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


def test_a_request_that_was_lost_is_repeated() -> None:
    asked = SessionState(size=LARGE, cycle="two", outcome=ASKED, attempts=1, at=NOW)

    assert reason(asked, now=NOW + 899) == ""
    assert reason(asked, now=NOW + 900)


def test_a_session_that_is_over_is_left_alone() -> None:
    assert reason(SessionState(size=LARGE), grown_at=NOW - 3_601) == ""


def test_a_transcript_that_grew_by_so_many_bytes_is_flushed_whatever_its_tokens() -> None:
    big = SessionState(size=SessionSize(offset=3_000_000, compacted_at=900_000))

    assert reason(big, force=2_097_152).startswith("2100000 bytes")
    assert reason(big, force=0) == ""


def test_the_register_says_the_model_and_window_and_what_is_background(tmp_path: Path) -> None:
    content = {
        "agent:main:main": {"sessionId": "a", "model": "m", "contextTokens": 32_000},
        "agent:main:cron:daily": {"sessionId": "b", "contextTokens": "many"},
        "agent:main:odd": [],
    }
    (tmp_path / "sessions.json").write_text(json.dumps(content), encoding="utf-8")

    found = flush_plan.read_registry(tmp_path)

    assert found["a.jsonl"] == flush_plan.RegistryEntry(key="agent:main:main", model="m", window=32_000)
    assert not found["a.jsonl"].is_background
    assert found["b.jsonl"].is_background and found["b.jsonl"].window == 0


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "\0"])
def test_a_registry_that_cannot_be_read_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "sessions.json").write_text(text, encoding="utf-8")

    assert flush_plan.read_registry(tmp_path) == {}


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

    flush_plan.record_request(waiting, "it waits", NOW)
    assert (waiting.cycle, waiting.start, waiting.outcome, waiting.attempts) == ("two", 3, ASKED, 10)

    waiting.outcome, waiting.reply = STORED, ""
    flush_plan.record_request(waiting, reason(waiting), NOW)
    assert (waiting.cycle, waiting.start, waiting.attempts) == ("three", 7, 1)


def test_a_session_is_given_up_after_three_failures_or_without_a_worker() -> None:
    assert flush_plan.is_given_up(SessionState(outcome=FAILED, attempts=3), NOW)
    assert flush_plan.is_given_up(SessionState(outcome=ASKED, attempts=1, at=NOW - 900), NOW)
    assert not flush_plan.is_given_up(SessionState(outcome=ASKED, attempts=3, at=NOW), NOW)
    assert not flush_plan.is_given_up(SessionState(outcome=STORED, attempts=3), NOW)
    assert not flush_plan.is_given_up(SessionState(), NOW)


def test_the_registry_names_files_and_providers_and_links_and_pipes_are_not_read(tmp_path: Path) -> None:
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
    assert flush_plan.read_registry(tmp_path) == {}

    (tmp_path / "sessions.json").unlink()
    os.mkfifo(tmp_path / "sessions.json")
    assert flush_plan.read_registry(tmp_path) == {}

    (tmp_path / "sessions.json").unlink()
    (tmp_path / "real.json").rename(tmp_path / "sessions.json")
    assert flush_plan.read_registry(tmp_path) == {
        "a-topic-7.jsonl": flush_plan.RegistryEntry(key="agent:main:topic", model="anthropic/opus")
    }


def threshold(window: int, *, reserve: int, soft: int) -> int:
    flush = MemoryFlush(soft_threshold_tokens=soft)
    compaction = Compaction(reserve_tokens_floor=reserve, memory_flush=flush)
    return flush_plan.threshold_in(Sessions(compaction=compaction), window)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (200_000, 176_000),
        (128_000, 104_000),
        (32_768, 8_768),
        # The reserve of 20,000 would be more than the whole window; half of it, or 8,000, stays.
        (16_384, 4_000),
        (8_192, 2_048),
        (2, 1),
        (1, 0),
        (0, 0),
    ],
)
def test_a_session_is_flushed_before_the_reserve_of_its_window(window: int, expected: int) -> None:
    assert threshold(window, reserve=20_000, soft=4_000) == expected


@given(st.integers(2, 2_000_000), st.integers(0, 2_000_000), st.integers(0, 2_000_000))
def test_the_threshold_lies_in_the_upper_part_of_what_the_reserve_leaves(
    window: int, reserve: int, soft: int
) -> None:
    tokens = threshold(window, reserve=reserve, soft=soft)

    room = window - min(reserve, window - min(8_000, window // 2))
    assert room / 2 <= tokens <= room <= window


def test_the_window_is_that_of_the_model_then_of_the_session_then_the_default(tmp_path: Path) -> None:
    compaction = Compaction(reserve_tokens_floor=0, memory_flush=MemoryFlush(soft_threshold_tokens=0))
    sessions = Sessions(
        context_windows={"small": 16_384, "there/qwen": 8_000, "qwen": 32_000},
        context_tokens=100_000,
        compaction=compaction,
    )
    settings = AgentSettings(
        agent="main", workspace=tmp_path, index_path=tmp_path, state_dir=tmp_path, sessions=sessions
    )
    entry = flush_plan.RegistryEntry(window=64_000)

    assert flush_plan.threshold_of(settings, entry, "small") == 16_384
    assert flush_plan.threshold_of(settings, entry, "other") == 64_000
    assert flush_plan.threshold_of(settings, flush_plan.RegistryEntry(), "other") == 100_000
    # The same model may have another window at another provider.
    assert flush_plan.threshold_of(settings, entry, "there/qwen") == 8_000
    assert flush_plan.threshold_of(settings, entry, "elsewhere/qwen") == 32_000
