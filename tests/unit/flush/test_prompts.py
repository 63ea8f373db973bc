from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.flush import prompts

NOW = datetime(2026, 2, 3, 9, 5, tzinfo=UTC)


def test_a_prompt_of_ones_own_still_says_how_to_keep_nothing() -> None:
    assert "NO_REPLY" in prompts.system_prompt("Keep notes.")
    assert prompts.system_prompt("Say NO_REPLY.") == "Say NO_REPLY."
    assert "NO_REPLY" in prompts.request("Write it down.", NOW)
    assert "NO_REPLY" in prompts.system_prompt("") and "NO_REPLY" in prompts.request("", NOW)


def test_the_request_names_the_day_and_the_time() -> None:
    text = prompts.request("Use memory/YYYY-MM-DD.md or NO_REPLY.", NOW)

    assert "memory/2026-02-03.md" in text
    assert text.endswith("Current time: Tuesday, 2026-02-03 09:05 UTC")


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("NO_REPLY", ""),
        ("  **NO_REPLY**\nnothing happened", ""),
        ("", ""),
        ("```\nNO_REPLY\n```", ""),
        ("- a fact\n- another\n", "- a fact\n- another"),
        ("```markdown\n- a fact\n```", "- a fact"),
        ("- a fact\n\nNO_REPLY.", "- a fact"),
        ("- NO_REPLYING is a word", "- NO_REPLYING is a word"),
        ("- a\r\n- b\0", "- a\n- b"),
    ],
)
def test_an_answer_is_read_as_what_is_to_be_kept(answer: str, kept: str) -> None:
    assert prompts.entry(answer) == kept


def test_the_day_is_that_of_the_user() -> None:
    just_before_midnight_utc = datetime(2026, 2, 3, 23, 30, tzinfo=UTC).timestamp()

    assert f"{prompts.local_time('Asia/Tokyo', just_before_midnight_utc):%Y-%m-%d %Z}" == "2026-02-04 JST"
    assert prompts.local_time("", just_before_midnight_utc).tzinfo is not None
