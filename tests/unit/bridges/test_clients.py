"""What connects an MCP client: the words of its file, and those of docs/mcp.md."""

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from memline.producers.bridges import clients
from memline.producers.bridges.clients import CLIENTS, Server
from memline.shared.config import config_file
from memline.shared.errors import ConfigError
from memline.shared.values import replace
from tests.support.process import ROOT

SERVER = Server(command="memline", args=("--workspace", "/home/you/notes", "mcp"))


def parsed(text: str, *, is_toml: bool) -> Any:
    return tomllib.loads(text) if is_toml else config_file.parse(text, where="f")


@pytest.mark.parametrize("name", CLIENTS)
def test_the_page_on_clients_shows_what_is_written(name: str) -> None:
    client = CLIENTS[name]
    language = "toml" if client.is_toml else "json5" if name == "openclaw" else "json"
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "mcp.md").read_text("utf-8"), re.DOTALL)

    assert parsed(client.snippet("memline", SERVER), is_toml=client.is_toml) in [
        parsed(block, is_toml=client.is_toml) for block in blocks
    ]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_server_is_put_beside_others_once(name: str) -> None:
    client = CLIENTS[name]
    other, values = client.values(Server(command="other", args=())), client.values(SERVER)
    text = client.changed("", "other", other, where="f")

    changed = client.changed(text, "memline", values, where="f")

    servers = parsed(changed, is_toml=client.is_toml)
    for part in client.place:
        servers = servers[part]
    assert servers == {"other": other, "memline": values}
    assert client.changed(changed, "memline", values, where="f") == changed
    assert client.current(client.removed(changed, "memline", [], where="f"), "other", where="f") == other


#: Files as clients and people leave them.
_JSON = (
    "",
    "{}",
    "{}\n",
    '{\n  "a": 1\n}\n',
    '{"a": 1}',
    "{\n  // mine\n  a: [1, 2], // two\n}\n",
    '{\n\t"PLACE": {\n\t\t"x": {"command": "x"}, // by hand\n\t}\n}',
    '{"PLACE": {}}',
    '{"PLACE": {"x": {}}, "z": [1, /* two */ 2]}\n',
)
_TOML = (
    "",
    "# nothing\n",
    "mcp_servers = { x = {command = 'y'} } # mine\n",
    'model = "o9" # mine\n',
    "[PLACE.x]\ncommand = 'x'\n\n[other]\na = 1\n",
)


@pytest.mark.parametrize("name", CLIENTS)
def test_what_was_put_in_is_taken_out_to_the_byte(name: str) -> None:
    client = CLIENTS[name]
    forms = _TOML if client.is_toml else _JSON
    for form in (*forms, *(f"\ufeff{each}" for each in forms)):
        text = form.replace("PLACE", client.place[0])
        changed = client.changed(text, "memline", client.values(SERVER), where="f")

        assert client.changed(changed, "memline", client.values(SERVER), where="f") == changed
        assert changed.startswith("\ufeff") == text.startswith("\ufeff")
        assert client.removed(changed, "memline", ["not this", text], where="f") == text


@pytest.mark.parametrize("name", CLIENTS)
def test_an_entry_that_was_changed_is_taken_out_and_not_put_back(name: str) -> None:
    client = CLIENTS[name]
    text = (_TOML if client.is_toml else _JSON)[0].replace("PLACE", client.place[0])
    first = client.changed(text, "memline", {"command": "of-before"}, where="f")
    second = client.changed(first, "memline", client.values(SERVER), where="f")

    assert client.removed(second, "memline", [first, text], where="f") == text
    assert client.current(client.removed(second, "memline", [first], where="f"), "memline", where="f") is None


def test_a_file_that_is_no_toml_is_named_when_the_entry_is_taken_out() -> None:
    with pytest.raises(ConfigError, match="theirs"):
        CLIENTS["codex"].removed("a = \n", "memline", [], where="theirs")


@pytest.mark.parametrize("name", CLIENTS)
def test_an_entry_is_taken_out_when_the_rest_was_changed_meanwhile(name: str) -> None:
    client = CLIENTS[name]
    for form in _TOML if client.is_toml else _JSON:
        text = form.replace("PLACE", client.place[0])
        changed = client.changed(text, "memline", client.values(SERVER), where="f")
        changed = client.changed(changed, "later", client.values(SERVER), where="f")

        left = client.removed(changed, "memline", [text], where="f")

        assert client.current(left, "memline", where="f") is None
        assert client.current(left, "later", where="f") == client.values(SERVER)
        assert [
            part
            for part in ("// mine", "# mine", "// by hand", "/* two */")
            if part in text and part not in left
        ] == []


def test_codex_hands_the_key_on_by_its_name_beside_other_variables() -> None:
    server = replace(SERVER, key_variable="OPENAI_API_KEY")
    text = '[mcp_servers.memline]\nenv_vars = ["PROXY"]\n'

    changed = CLIENTS["codex"].changed(text, "memline", CLIENTS["codex"].values(server), where="f")

    assert tomllib.loads(changed)["mcp_servers"]["memline"]["env_vars"] == ["PROXY", "OPENAI_API_KEY"]
    assert "OPENAI_API_KEY" not in CLIENTS["cursor"].snippet("memline", server)


@pytest.mark.parametrize("name", ["", "a b", 'x"]', "ü", "a.b", "a" * 65])
def test_a_name_that_clients_do_not_take_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        CLIENTS["codex"].changed("", name, {}, where="f")


def test_the_command_is_the_one_that_was_typed_links_and_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").write_text("#!/bin/sh\n")
    (tmp_path / "real").chmod(0o755)
    (tmp_path / "memline").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["memline", "setup", "claude"])

    assert clients.own_command() == os.path.abspath("memline")


def test_without_a_script_the_command_is_that_of_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memline").write_text("#!/bin/sh\n")
    (tmp_path / "memline").chmod(0o755)
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    assert clients.own_command() == str(tmp_path / "memline")


# -- a table of a TOML file is changed; every other character stays ------------------------------------

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
    changed = clients.put_toml(text, TABLE, VALUES, where="f")

    assert tomllib.loads(changed)["mcp_servers"]["memline"].items() >= VALUES.items()
    assert clients.put_toml(changed, TABLE, VALUES, where="f") == changed
    assert all(line in changed for line in text.splitlines() if "#" in line and "[not" not in line)


def test_all_else_stays_where_it_is() -> None:
    changed = clients.put_toml(COMMENTED, TABLE, {"command": "new", "args": ["mcp"]}, where="f")

    old = 'args = [\n  "--workspace", # [not a table]\n  "/old",\n]\n'
    assert changed == COMMENTED.replace(old, 'args = ["mcp"]\n').replace('"old"\n\n', '"new"\n\n')


@pytest.mark.parametrize(
    "text",
    [
        "[mcp_servers.x]\ncommand = 'x'\n\n# of the other\n[other]\na = 1\n",
        "[mcp_servers]\n\n[other]\na = 1\n",
        "mcp_servers.x.command = 'x'\nz = 2\n",
    ],
)
def test_a_new_table_stands_at_the_end_clear_of_the_others(text: str) -> None:
    changed = clients.put_toml(text, TABLE, {"command": "m"}, where="f")

    assert changed == f'{text}\n[mcp_servers.memline]\ncommand = "m"\n'


@pytest.mark.parametrize(
    "text", ["", "model = 'x'\n", "[other]\na = 1\n", "[mcp_servers]\n\n[other]\na = 1\n"]
)
def test_the_only_server_is_taken_out_without_a_copy_of_the_file(text: str) -> None:
    changed = clients.put_toml(text, TABLE, VALUES, where="f")

    assert clients.remove_toml(changed, TABLE, where="f").rstrip("\n") == text.rstrip("\n")


def test_a_change_that_would_lose_another_value_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients.tomlkit, "dumps", lambda _: "a = 1\n")

    with pytest.raises(ConfigError, match="not understood"):
        clients.put_toml("z = 2\n", ("a", "new"), VALUES, where="f")


def test_a_list_that_grows_keeps_what_it_holds() -> None:
    text = '[mcp_servers.memline]\nenv_vars = ["A"]\n'

    for _ in range(2):
        text = clients.put_toml(text, TABLE, {"env_vars": ["B"]}, grows=["env_vars"], where="f")

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
        clients.put_toml(text, TABLE, VALUES, where="f")
