"""Where other programs keep their sessions, by their own variables."""

from pathlib import Path

import pytest

from memline.shared.config.environment import place_of


@pytest.mark.parametrize(
    ("name", "variables", "place"),
    [
        ("openclaw", {}, "/home/a/.openclaw"),
        ("openclaw", {"OPENCLAW_STATE_DIR": "~/state"}, "/home/a/state"),
        ("claude-code", {}, "/home/a/.claude/projects"),
        ("claude-code", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/projects"),
        ("codex", {}, "/home/a/.codex"),
        ("codex", {"CODEX_HOME": "/c"}, "/c"),
        ("gemini", {}, "/home/a/.gemini"),
        ("gemini", {"GEMINI_CLI_HOME": "/g"}, "/g/.gemini"),
        ("opencode", {}, "/home/a/.local/share/opencode/opencode.db"),
        ("opencode", {"XDG_DATA_HOME": "/d", "OPENCODE_DB": "next.db"}, "/d/opencode/next.db"),
        ("opencode", {"OPENCODE_DB": "/other/my.db"}, "/other/my.db"),
    ],
)
def test_a_program_is_looked_for_where_it_says(name: str, variables: dict[str, str], place: str) -> None:
    assert place_of(name, {"HOME": "/home/a", **variables}) == Path(place)
