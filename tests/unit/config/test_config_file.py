from pathlib import Path

import pytest

from memline.shared.config import config_file
from memline.shared.errors import ConfigError


def write(path, text="{}"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_four_places_are_tried_in_order(home, tmp_path):
    env = {"HOME": str(home)}
    assert config_file.find(None, env) is None
    openclaw = write(home / ".openclaw" / "openclaw.json")
    assert config_file.find(None, env) == openclaw

    own = write(home / ".config" / "memline" / "config.json5")
    assert config_file.find(None, env) == own

    by_variable = write(tmp_path / "variable.json5")
    env["MEMLINE_CONFIG"] = str(by_variable)
    assert config_file.find(None, env) == by_variable

    by_option = write(tmp_path / "option.json5")
    assert config_file.find(by_option, env) == by_option


@pytest.mark.parametrize("env", [{}, {"MEMLINE_CONFIG": "/nowhere/c.json5"}])
def test_a_named_file_that_is_missing_is_an_error(env):
    named = None if env else Path("/nowhere/c.json5")

    with pytest.raises(ConfigError) as caught:
        config_file.find(named, env)

    assert "/nowhere/c.json5" in caught.value.message and caught.value.hint
    assert ("MEMLINE_CONFIG" if env else "--config") in caught.value.message


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("", {}),
        ("  \n", {}),
        ("// only a comment\n", {}),
        ("\ufeff{}", {}),
        ("{ // comment\n  a: 'x', b: [1, 0x10,], \"c\": .5, }", {"a": "x", "b": [1, 16], "c": 0.5}),
    ],
)
def test_json5_is_understood(tmp_path, text, content):
    assert config_file.read(write(tmp_path / "c.json5", text)) == content


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{a: 1,\n b: }", "line 2: "),
        ("{a: 1,\n\n  é: @}".encode(), "line 3: "),
        (b"{\n  a: [1, 2", "line 2: this is not JSON5, or something is not closed"),
        (b"[" * 5000, "line 1"),
        (b'{apiKey: "sk-hush" oops}', "this is not JSON5"),
        (b"[1]", "has to hold an object"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    ],
)
def test_a_broken_file_is_reported_with_its_place_and_without_its_content(tmp_path, content, complaint):
    path = tmp_path / "c.json5"
    path.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        config_file.read(path)

    assert caught.value.message.startswith(f"{path}: ") and complaint in caught.value.message
    assert caught.value.exit_code == 2
    assert "sk-hush" not in caught.value.message + caught.value.hint
    assert caught.value.__context__ is None or caught.value.__suppress_context__ or b"\xff" in content
