"""`memline setup`: what it writes connects a client, and nothing else in the client's file is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult

from tests.support import openclaw
from tests.support.process import ROOT, TIMEOUT_S
from tests.support.pseudo_terminal import on_terminal
from tests.support.shell import Shell
from tests.support.workspace import until

#: The folder of the real clients' programs; empty when they are not installed.
MCP_CLIENTS = os.environ.get("MCP_CLIENTS", "")


@pytest.fixture
def shell(monkeypatch, capsys, tmp_path, home):
    """A shell with a `memline` of its own, as an install puts one on the disk."""
    script = tmp_path / "bin" / "memline"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from memline.producers.start import main\nmain()\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.chdir(tmp_path)
    return Shell(monkeypatch, capsys)


def folder(path, text):
    path.mkdir(parents=True)
    (path / "MEMORY.md").write_text(text)
    return path


def ask(entry, query, cwd):
    """Start the server of an entry as a client does, and return the snippets of its hits."""

    async def run():
        parameters = StdioServerParameters(
            command=entry["command"], args=entry["args"], cwd=cwd, env={"HOME": os.environ["HOME"]}
        )
        with anyio.fail_after(TIMEOUT_S):
            async with Client(stdio_client(parameters)) as client:
                result = await client.call_tool("memory_search", {"query": query})
        assert isinstance(result, CallToolResult) and result.structured_content
        return [hit["snippet"].partition("\n")[0] for hit in result.structured_content["results"]]

    return anyio.run(run)


def test_two_repositories_side_by_side_have_each_their_own_memory(shell, tmp_path):
    for name in ("shop", "blog"):
        folder(tmp_path / name, f"We deploy the {name} on Mondays.\n")
        words = ("setup", "claude", "--write", "--yes", "--file", ".mcp.json")
        ran = shell("--workspace", ".", *words, cwd=tmp_path / name)
        assert (ran.status, "Wrote " in ran.stdout) == (0, True)

    for name in ("shop", "blog"):
        (entry,) = json.loads((tmp_path / name / ".mcp.json").read_text())["mcpServers"].values()
        # Wherever the client is started.
        assert ask(entry, "when do we deploy the shop and the blog", tmp_path) == [
            f"We deploy the {name} on Mondays."
        ]


def test_a_client_with_a_command_of_its_own_is_told_by_it(shell, tmp_path, monkeypatch):
    notes = folder(tmp_path / "my notes", "x\n")
    theirs, told = tmp_path / "bin" / "claude", tmp_path / "told"
    theirs.write_text(f'#!/bin/sh\nfor each in "$@"; do echo "$each"; done > {told}\n')
    theirs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    ran = shell("--workspace", str(notes), "setup", "claude", "--write", "--yes")

    assert (ran.status, (tmp_path / ".mcp.json").exists()) == (0, False)
    memline = str(tmp_path / "bin" / "memline")
    words = ["mcp", "add", "--scope", "user", "memline", "--", memline, "--workspace", str(notes), "mcp"]
    assert told.read_text().splitlines() == words


def test_without_its_command_a_client_is_connected_in_one_folder(shell, tmp_path, monkeypatch):
    notes = folder(tmp_path / "notes", "x\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    words = ("--workspace", str(notes), "setup", "claude", "--write", "--yes")

    wrote, again = shell(*words), shell(*words)

    file = tmp_path / ".mcp.json"
    assert wrote.stdout == f"Wrote {file}. Start Claude Code again.\n"
    assert f"in {tmp_path} alone. For all: claude mcp add --scope user" in wrote.stderr
    assert again.stdout == f"{file} has it already.\n"


@pytest.mark.parametrize("content", ["{\n  // mine\n  gateway: { port: 1 },\n}\n", "{", "[]"])
def test_a_file_that_is_not_plain_json_is_left_and_what_to_add_is_printed(shell, tmp_path, content):
    notes = folder(tmp_path / "notes", "x\n")
    file = tmp_path / "openclaw.json"
    file.write_text(content)

    ran = shell("--workspace", str(notes), "setup", "openclaw", "--write", "--yes", "--file", str(file))

    assert (ran.status, file.read_text()) == (1, content)
    assert ran.json["mcp"]["servers"]["memline"]["args"] == ["--workspace", str(notes), "mcp"]
    assert f"Add it yourself to {file}" in ran.stderr


def test_all_else_in_a_plain_file_stays(shell, tmp_path):
    notes = folder(tmp_path / "notes", "x\n")
    file = tmp_path / "settings.json"
    file.write_text('{"a": "ü", "context_servers": {"x": {}}}')
    file.chmod(0o640)

    ran = shell("--workspace", str(notes), "setup", "zed", "--write", "--yes", "--file", str(file))

    content = json.loads(file.read_text())
    assert (ran.status, content["a"], [*content["context_servers"]]) == (0, "ü", ["x", "memline"])
    assert file.stat().st_mode & 0o777 == 0o640


def test_without_write_nothing_is_written_and_what_is_printed_is_the_file(shell, tmp_path, home):
    notes = folder(tmp_path / "notes", "x\n")
    shell.setenv("MEMLINE_HOME", str(tmp_path / "data"))
    shell.setenv("OPENAI_API_KEY", "sk-secret")

    ran = shell("--workspace", str(notes), "setup", "cursor")

    (entry,) = ran.json["mcpServers"].values()
    # The variables of this shell are not those of the client.
    assert entry["args"] == ["--home", str(tmp_path / "data"), "--workspace", str(notes), "mcp"]
    assert entry["command"] == str(tmp_path / "bin" / "memline")
    assert "OPENAI_API_KEY" in ran.stderr and "sk-secret" not in ran.stdout + ran.stderr
    assert not (home / ".cursor").exists()
    codex = shell("--workspace", str(notes), "setup", "codex").stdout
    assert 'env_vars = ["OPENAI_API_KEY"]' in codex and "sk-secret" not in codex


def test_it_asks_before_it_writes(shell, tmp_path):
    notes = folder(tmp_path / "notes", "x\n")
    arguments = ["--workspace", str(notes), "setup", "cursor", "--write"]

    refused = shell(*arguments)
    assert (refused.status, "add --yes" in refused.stderr) == (2, True)
    # An answer to what is not asked: printing is not what was meant.
    printed = shell(*arguments[:-1], "--yes")
    assert (printed.status, printed.stdout) == (2, "") and "goes with --write" in printed.stderr
    with on_terminal(*arguments, "--file", str(tmp_path / "f.json")) as terminal:
        terminal.until(lambda shown: "[y/N]" in shown, "the question")
        terminal.type("n\n")
        assert terminal.end() == 1

    assert not list(tmp_path.glob("*.json")) and not (tmp_path / ".cursor").exists()


@pytest.mark.parametrize(("existing", "written"), [("opencode.jsonc",) * 2, ("", "opencode.json")])
def test_the_file_of_a_client_that_exists_is_the_one(shell, tmp_path, home, existing, written):
    place = home / ".config" / "opencode"
    if existing:
        place.mkdir(parents=True)
        (place / existing).write_text("{}\n")

    shell("--workspace", str(folder(tmp_path / "notes", "x\n")), "setup", "opencode", "--write", "--yes")

    assert '"command": [' in (place / written).read_text()
    assert [each.name for each in place.iterdir()] == [written]


#: The command of each real client that lists its servers, and what it says of one that answers.
LISTS = {
    "codex": (["mcp", "list", "--json"], '"enabled": true'),
    "gemini": (["mcp", "list"], "Connected"),
    "opencode": (["mcp", "list"], "connected"),
    # Its list shows what is stored; this starts the server, and has `!` for one that does not answer.
    "openclaw": (["mcp", "probe"], "- memline: "),
}


@pytest.mark.parametrize("name", LISTS)
def test_the_real_client_is_connected(shell, tmp_path, home, name, monkeypatch):
    is_openclaw = name == "openclaw"
    programs = openclaw.PROGRAMS and f"{openclaw.PROGRAMS}/newest" if is_openclaw else MCP_CLIENTS
    if not programs:
        pytest.skip(f"no real {name}: sh scripts/{name if is_openclaw else 'clients'}.sh")
    notes = folder(tmp_path / "notes", "The lamp stands at the window.\n")
    arguments, connected = LISTS[name]
    # `setup` asks the client itself to add the server where its file is not plain JSON.
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    shell("--workspace", str(notes), "setup", name, "--write", "--yes")

    def listed():
        ran = subprocess.run(
            [Path(programs, name), *arguments],
            cwd=notes,
            env={"HOME": str(home), "PATH": os.environ["PATH"], "GEMINI_CLI_TRUST_WORKSPACE": "true"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return ran.stdout or ran.stderr

    # A client waits for a server for some seconds only, which a loaded machine may need.
    until(lambda: connected in listed(), "the client is connected")
    if name == "codex":
        # It does not start its servers to list them: what it has stored is started here.
        (entry,) = [each["transport"] for each in json.loads(listed())]
        assert ask(entry, "lamp", tmp_path) == ["The lamp stands at the window."]
