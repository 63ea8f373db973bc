import json
from pathlib import Path
from random import Random

import pyjson5
import pytest

from memline.shared.config import config_file
from memline.shared.errors import ConfigError


def write(path: Path, text: str = "{}") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_any_file_there_is_none(home: Path) -> None:
    assert config_file.find(None, {"HOME": str(home)}) is None


def test_the_four_places_are_tried_in_order(home: Path, tmp_path: Path) -> None:
    env = {"HOME": str(home)}
    openclaw = write(home / ".openclaw" / "openclaw.json")
    assert config_file.find(None, env) == openclaw

    own = write(home / ".config" / "memline" / "config.json5")
    assert config_file.find(None, env) == own

    by_variable = write(tmp_path / "variable.json5")
    env["MEMLINE_CONFIG"] = str(by_variable)
    assert config_file.find(None, env) == by_variable

    by_option = write(tmp_path / "option.json5")
    assert config_file.find(by_option, env) == by_option


def test_xdg_config_home_and_the_state_directory_move_the_default_places(home: Path, tmp_path: Path) -> None:
    env = {"HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "x"), "OPENCLAW_STATE_DIR": "~/state"}

    assert config_file.default_places(env) == (
        tmp_path / "x" / "memline" / "config.json5",
        home / "state" / "openclaw.json",
    )


def test_a_relative_xdg_config_home_is_ignored(home: Path) -> None:
    place, _ = config_file.default_places({"HOME": str(home), "XDG_CONFIG_HOME": "here"})

    assert place == home / ".config" / "memline" / "config.json5"


@pytest.mark.parametrize("env", [{}, {"MEMLINE_CONFIG": "/nowhere/c.json5"}])
def test_a_named_file_that_is_missing_is_an_error(env: dict[str, str]) -> None:
    named = None if env else Path("/nowhere/c.json5")

    with pytest.raises(ConfigError) as caught:
        config_file.find(named, env)

    assert "/nowhere/c.json5" in caught.value.message
    assert ("MEMLINE_CONFIG" if env else "--config") in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "  \n", "// only a comment\n", "\ufeff{}"])
def test_an_empty_file_is_an_empty_object(tmp_path: Path, text: str) -> None:
    assert config_file.read(write(tmp_path / "c.json5", text)) == {}


def test_json5_is_understood(tmp_path: Path) -> None:
    text = "{ // comment\n  a: 'x', b: [1, 0x10,], \"c\": .5, }"

    assert config_file.read(write(tmp_path / "c.json5", text)) == {"a": "x", "b": [1, 16], "c": 0.5}


JSON5_TEXTS = (
    """{
  // c "x" 'y'
  workspace: "/a", /* a
  b */ memorySearch: { extraPaths: ["."], exclude: [], n: 1.5e3, t: true, // z
  'k': 'v', "q": "a\\"b // no", $x_1: null, nan: NaN, inf: -Infinity, },
}""",
    """{"a":'it"s // x', b: 'z\\'w', c: "\\u0041",}""",
    '{"a": "b /* */ c", /* " */ d: "e"}',
    """{'a': "it's", b: '/* no */', c: [ [1,], ],}""",
    "[1,2,,3] [,] {,}",
    '"x // y\\n"',
    "a: 1,\ntrue: .5, c: {d: 0x10}",
)


def test_what_is_read_without_the_parser_of_json5_is_what_that_reads() -> None:
    """Texts with some characters changed: most are wrong in one place, and must not become right."""
    random = Random(1)
    pieces = [*"{}[]:,\"'\\/*\n\r \tb1$_.-\u2028", "//", "/*", "*/", ",]", ",}", '""', "''"]
    compared = 0
    for number in range(5_000):
        text = JSON5_TEXTS[number % len(JSON5_TEXTS)]
        for _ in range(random.randrange(5)):
            at = random.randrange(len(text) + 1)
            text = text[:at] + random.choice(pieces) * random.randrange(2) + text[at + random.randrange(2) :]
        try:
            read = json.loads(config_file._as_json(text))
        except ValueError:
            continue
        compared += 1
        assert repr(read) == repr(pyjson5.decode(text)), text
    assert compared > 500


@pytest.mark.parametrize(
    ("text", "place", "complaint"),
    [
        ("{a: 1,\n b: }", "line 2, column 5", "'}' is not expected"),
        ("{a: 1,\n\n  é: @}", "line 3, column 6", "'@' is not expected"),
        ("{\n  a: [1, 2", "line 2, column 6", "array that starts here is not closed"),
        ("{a: 1}\nx", "line 2, column 1", "after the end"),
        ("{a: 'x\ny'}", "line 1, column 5", "string that starts here is not closed"),
        ("a: 1,\nb: @", "line 2, column 4", "'@' is not expected"),
        ("a: {\nb: 1", "line 2, column 5", "the end of the file is not expected"),
        ("[" * 5000, "line 1", "nested too deep"),
    ],
)
def test_a_broken_file_is_reported_with_line_and_column(
    tmp_path: Path, text: str, place: str, complaint: str
) -> None:
    path = write(tmp_path / "c.json5", text)

    with pytest.raises(ConfigError) as caught:
        config_file.read(path)

    assert f"{path}: {place}" in caught.value.message
    assert complaint in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text", ["a: 1, b: {c: 2}", "// x\n/* y */ 'a': 1,\nb: {c: 2}, // end", '"a":1,b:{c:2}']
)
def test_the_members_of_an_object_are_understood_without_their_braces(tmp_path: Path, text: str) -> None:
    assert config_file.read(write(tmp_path / "c.json5", text)) == {"a": 1, "b": {"c": 2}}


def test_many_comments_take_no_time(tmp_path: Path) -> None:
    assert config_file.read(write(tmp_path / "c.json5", "/* a */ " * 10_000 + "{a: 1}")) == {"a": 1}


def test_a_secret_beside_the_fault_is_not_quoted(tmp_path: Path) -> None:
    path = write(tmp_path / "c.json5", '{apiKey: "sk-hush" oops}')

    with pytest.raises(ConfigError) as caught:
        config_file.read(path)

    assert "sk-hush" not in caught.value.message + caught.value.hint
    assert "sk-hush" not in repr(caught.value.__context__ if not caught.value.__suppress_context__ else "")


def test_a_file_of_something_else_than_an_object_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has to hold an object"):
        config_file.read(write(tmp_path / "c.json5", "[1]"))


def test_a_folder_cannot_be_read_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        config_file.read(tmp_path)


def test_bytes_that_are_not_utf8_are_reported_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "c.json5"
    path.write_bytes(b'{"a": "\xff"}')

    with pytest.raises(ConfigError, match="not UTF-8 at byte 7"):
        config_file.read(path)
