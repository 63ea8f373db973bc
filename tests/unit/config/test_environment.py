from pathlib import Path

import pytest

from memline.shared.config import environment
from memline.shared.errors import ConfigError


def test_a_secret_is_read_from_the_file_that_its_variable_names(tmp_path):
    (tmp_path / "key").write_text("sk-1\n")
    env = {"OPENAI_API_KEY_FILE": str(tmp_path / "key"), "OPENAI_API_KEY": ""}

    assert environment.provider_keys(env) == {"openai": "sk-1"}
    assert environment.provider_key_name(env, "openai") == "OPENAI_API_KEY_FILE"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("sk-2", r"^A and A_FILE are both set$"),
        ("", r"A_FILE: cannot read .*/key: No such file or directory"),
    ],
)
def test_a_secret_that_is_set_twice_or_whose_file_is_missing_is_an_error(tmp_path, value, said):
    with pytest.raises(ConfigError, match=said):
        environment.secret({"A": value, "A_FILE": str(tmp_path / "key")}, "A")


@pytest.mark.parametrize("content", [b"", b" \n", b"one\ntwo", b"\0", b"a" * 20_000, b"\xff\xfe"])
def test_a_file_without_one_line_of_text_is_an_error_that_quotes_none_of_it(content, tmp_path):
    (tmp_path / "key").write_bytes(content)

    with pytest.raises(ConfigError, match=r"^A_FILE: .* one line of text$") as caught:
        environment.secret({"A_FILE": str(tmp_path / "key")}, "A")

    assert "two" not in f"{caught.value.message} {caught.value.hint}"


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
def test_a_program_is_looked_for_where_it_says(name, variables, place):
    assert environment.place_of(name, {"HOME": "/home/a", **variables}) == Path(place)
