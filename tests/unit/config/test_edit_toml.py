"""A table of a TOML file is changed; every other character stays."""

import tomllib

import pytest

from memline.shared.config import edit_toml
from memline.shared.errors import ConfigError

TABLE = ("mcp_servers", "memline")
VALUES: dict[str, str | list[str]] = {"command": "/bin/memline", "args": ["--workspace", 'a "b" \\ ü', "mcp"]}

COMMENTED = """\
model = "o9" # mine

[mcp_servers.memline] # the memory
# by hand
args = [
  "--workspace", # [not a table]
  "/old",
]
startup_timeout_sec = 20
"command" = "old"

[mcp_servers.memline.env]
A = "b"

[[profiles]]
args = ["other"]
"""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "[a]\nb = 1",
        COMMENTED,
        '[ mcp_servers . "memline" ]\n',
        "[mcp_servers.memline]",
        "mcp_servers = { memline = { command = 'x' } }",
        "mcp_servers.memline.command = 'x'\nz = 1 # one",
        "[mcp_servers.other]\ncommand = '''\n[mcp_servers.memline]\n'''\n",
    ],
)
def test_values_are_set_and_set_again_without_a_change(text: str) -> None:
    changed = edit_toml.put(text, TABLE, VALUES, where="f")

    assert tomllib.loads(changed)["mcp_servers"]["memline"].items() >= VALUES.items()
    assert edit_toml.put(changed, TABLE, VALUES, where="f") == changed
    assert all(line in changed for line in text.splitlines() if "#" in line and "[not" not in line)


def test_all_else_stays_where_it_is() -> None:
    changed = edit_toml.put(COMMENTED, TABLE, {"command": "new", "args": ["mcp"]}, where="f")

    old = 'args = [\n  "--workspace", # [not a table]\n  "/old",\n]\n'
    assert changed == COMMENTED.replace(old, 'args = ["mcp"]\n').replace('"old"\n\n', '"new"\n\n')


def test_a_change_that_would_lose_another_value_is_left() -> None:
    with pytest.raises(ConfigError, match="not understood"):
        edit_toml.put("a.b = 1\nz = 2\n", ("a", "new"), VALUES, where="f")


def test_a_list_that_grows_keeps_what_it_holds() -> None:
    text = '[mcp_servers.memline]\nenv_vars = ["A"]\n'

    for _ in range(2):
        text = edit_toml.put(text, TABLE, {"env_vars": ["B"]}, grows=["env_vars"], where="f")

    assert text == '[mcp_servers.memline]\nenv_vars = ["A", "B"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = [1", "f: "),
        ("mcp_servers = 3", "is not a table"),
        ("[[mcp_servers.memline]]\ncommand = 'x'", "is not a table"),
    ],
)
def test_what_cannot_be_changed_safely_is_left(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        edit_toml.put(text, TABLE, VALUES, where="f")
