from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memline.shared.config.load import Loaded, Options, examine
from memline.shared.config.show import shown_for_all


def loaded(tmp_path: Path, content: dict[str, Any], env: dict[str, str] | None = None) -> Loaded:
    file = tmp_path / "c.json5"
    file.write_text(json.dumps(content), encoding="utf-8")
    return examine(Options(config=file), {"HOME": str(tmp_path), **(env or {})})


def defaults(**keys: Any) -> dict[str, Any]:
    return {"agents": {"defaults": {"workspace": "/", **keys}}}


def test_without_a_word_about_sessions_the_defaults_of_the_original_hold(tmp_path: Path) -> None:
    sessions = loaded(tmp_path, defaults()).agent().sessions

    assert sessions.context_tokens == 200_000
    assert sessions.compaction.reserve_tokens_floor == 20_000
    assert sessions.compaction.memory_flush.soft_threshold_tokens == 4_000
    assert sessions.compaction.memory_flush.enabled


def test_the_original_keys_are_read_and_its_other_keys_left_alone(tmp_path: Path) -> None:
    compaction = {
        "mode": "safeguard",
        "keepRecentTokens": 9,
        "reserveTokensFloor": 30000,
        "memoryFlush": {"softThresholdTokens": 100, "model": "local/qwen", "command": ["llm", "-m", "x"]},
    }
    content = defaults(compaction=compaction, contextTokens=32768, userTimezone="Europe/Berlin")
    content["models"] = {"providers": {"local": {"models": [{"id": "qwen", "contextWindow": 16384}, 5]}}}

    result = loaded(tmp_path, content)

    sessions = result.agent().sessions
    assert result.problems == () and result.warnings == ()
    assert sessions.compaction.reserve_tokens_floor == 30_000
    assert sessions.compaction.memory_flush.command == ("llm", "-m", "x")
    assert (sessions.context_tokens, sessions.user_timezone) == (32_768, "Europe/Berlin")
    assert sessions.context_windows == {"local/qwen": 16_384, "qwen": 16_384}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"contextTokens": "many"}, "agents.defaults.contextTokens: found"),
        ({"contextTokens": 0}, "allowed: a whole number from 1"),
        ({"compaction": 5}, "agents.defaults.compaction: found the number 5"),
        ({"compaction": {"memoryFlush": True}}, "memoryFlush: found true, allowed: an object"),
        ({"compaction": {"memoryFlush": {"softThresholdTokens": -1}}}, "softThresholdTokens: found"),
        ({"compaction": {"memoryFlush": {"command": "llm"}}}, "allowed: an array of texts"),
        ({"compaction": {"memoryFlush": {"apiKey": "${NOT_SET}"}}}, "the variable NOT_SET is not set"),
    ],
)
def test_invalid_values_are_reported_with_their_place(
    tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    problems = [problem.message for problem in loaded(tmp_path, defaults(**keys)).problems]

    assert any(words in problem for problem in problems), problems


def test_a_misspelt_key_and_an_unknown_zone_are_warnings(tmp_path: Path) -> None:
    keys = {"userTimezone": "Mars/Base", "compaction": {"memoryFlush": {"softTresholdTokens": 1}}}

    warnings = loaded(tmp_path, defaults(**keys)).warnings

    assert any("did you mean softThresholdTokens?" in warning for warning in warnings)
    assert any("'Mars/Base' is not a valid time zone" in warning for warning in warnings)


def test_a_key_comes_from_the_environment_and_is_never_shown(tmp_path: Path) -> None:
    keys = {"compaction": {"memoryFlush": {"apiKey": "${CHAT_KEY}", "headers": {"x-team": "hush"}}}}

    result = loaded(tmp_path, defaults(**keys), {"CHAT_KEY": "sk-hush"})

    assert result.agent().sessions.compaction.memory_flush.api_key == "sk-hush"
    shown = str(shown_for_all(result))
    assert "hush" not in shown
    assert "memoryFlush.apiKey" in shown
