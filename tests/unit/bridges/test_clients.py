"""What connects an MCP client: the words of its file, and those of docs/agents.md."""

import json
import os
import re
import sys
import tomllib

import pytest
from msgspec.structs import replace

from memline.producers.bridges import clients
from memline.producers.bridges.clients import CLIENTS, Server
from memline.shared.config import config_file
from memline.shared.errors import ConfigError
from tests.support.process import ROOT

SERVER = Server(command="memline", args=("--workspace", "/home/you/notes", "mcp"))


def parsed(text, *, is_toml):
    return tomllib.loads(text) if is_toml else config_file.parse(text, where="f")


@pytest.mark.parametrize("name", CLIENTS)
def test_the_page_on_clients_shows_what_is_written(name):
    client = CLIENTS[name]
    language = "toml" if client.is_toml else "json5" if name == "openclaw" else "json"
    blocks = re.findall(
        rf"```{language}\n(.*?)```", (ROOT / "docs" / "agents.md").read_text("utf-8"), re.DOTALL
    )

    assert parsed(client.snippet("memline", SERVER), is_toml=client.is_toml) in [
        parsed(block, is_toml=client.is_toml) for block in blocks
    ]


@pytest.mark.parametrize("name", [each for each, client in CLIENTS.items() if not client.is_toml])
def test_a_server_is_put_beside_others(name):
    client = CLIENTS[name]
    content = json.loads(client.snippet("other", Server(command="other", args=()))) | {"mine": 1}

    changed = json.loads(client.with_server(content, "memline", SERVER))

    servers = changed
    for part in client.place:
        servers = servers[part]
    assert [*servers] == ["other", "memline"] and changed["mine"] == 1
    assert json.loads(client.with_server(changed, "memline", SERVER)) == changed


def test_codex_hands_the_key_on_by_its_name():
    server = replace(SERVER, key_variable="OPENAI_API_KEY")

    table = tomllib.loads(CLIENTS["codex"].snippet("memline", server))["mcp_servers"]["memline"]

    assert table["env_vars"] == ["OPENAI_API_KEY"]
    # Its own command cannot say that.
    assert CLIENTS["codex"].add_command("memline", server) == []
    assert "OPENAI_API_KEY" not in CLIENTS["cursor"].snippet("memline", server)


@pytest.mark.parametrize("name", ["", "a b", 'x"]', "ü", "a.b", "a" * 65])
def test_a_name_that_clients_do_not_take_is_refused(name):
    with pytest.raises(ConfigError, match="cannot be the name"):
        CLIENTS["codex"].snippet(name, SERVER)


def test_the_command_is_the_one_that_was_typed_links_and_all(tmp_path, monkeypatch):
    (tmp_path / "real").write_text("#!/bin/sh\n")
    (tmp_path / "real").chmod(0o755)
    (tmp_path / "memline").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["memline", "setup", "claude"])

    assert clients.own_command() == os.path.abspath("memline")
