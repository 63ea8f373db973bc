"""The memory plugin of OpenClaw: with a host in its place, and in the real program where it is installed."""

import json
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from memline.shared.config.installation import Serve
from tests.support.chat_server import ChatServer
from tests.support.http_api import serving
from tests.support.http_stub import HttpStub, QuietHandler
from tests.support.openclaw import chat_models, needs_openclaw, streamed, talk

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "deploy/openclaw"

#: AbortSignal.any came with 20.3.
_VERSION = (
    subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if shutil.which("node")
    else ""
)
needs_node = pytest.mark.skipif(
    not _VERSION or int(_VERSION[1:].partition(".")[0]) < 20, reason="there is no Node.js 20 or newer"
)

pytestmark = pytest.mark.place(
    files={
        "MEMORY.md": "# Facts\n\nInvoices are whole cents.\n",
        "memory/2026-02-10.md": "Deploy failed with ERR_CONN_42.\n",
    },
    is_indexed=True,
    provider="none",
)


def host(config, *calls):
    """Register the plugin and make the calls, as OpenClaw does."""
    asked = {"plugin": str(PLUGIN / "index.js"), "config": config, "calls": calls}
    ran = subprocess.run(
        ["node", str(ROOT / "tests/support/openclaw_host.mjs")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = json.loads(ran.stdout)
    return said


def search(query, **context):
    return {"tool": "memory_search", "params": {"query": query}, "context": context}


def get(path, **context):
    return {"tool": "memory_get", "params": {"path": path}, "context": context}


@pytest.fixture
def away():
    """An address where nothing listens, and nothing can begin to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def answering(status, body, *, headers=None):
    """A server that gives the same answer to everything."""

    class Handler(QuietHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            for name, text in {"content-length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

    with HttpStub(Handler) as server:
        yield server.url


@needs_node
def test_the_manifest_says_what_the_plugin_registers():
    manifest = json.loads((PLUGIN / "openclaw.plugin.json").read_text())
    package = json.loads((PLUGIN / "package.json").read_text())

    said = host({})

    assert said["id"] == manifest["id"] == package["name"]
    assert said["kind"] == manifest["kind"] == "memory"
    assert sorted(said["names"]) == manifest["contracts"]["tools"]
    assert [(tool["name"], tool["required"]) for tool in said["tools"]] == [
        ("memory_search", ["query"]),
        ("memory_get", ["path"]),
    ]
    assert any("memory_search" in line for line in said["prompt"])
    assert set(manifest["uiHints"]) == set(manifest["configSchema"]["properties"])


@needs_node
def test_both_tools_answer_over_http(place):
    with serving(place.settings) as url:
        found, read, missing, refused = host(
            {"url": f"{url}/"},
            search("cents"),
            get("MEMORY.md#L3"),
            get("memory/none.md"),
            get("../etc/passwd"),
        )["answers"]

    assert [hit["citation"] for hit in found["results"]] == ["MEMORY.md#L1-L3"]
    assert "disabled" not in found and found["mode"] == "keyword"
    assert read["text"] == "Invoices are whole cents."
    assert missing["status"] == "not_found"
    assert "not an allowed" in refused["error"] and refused["text"] == "" and "disabled" not in refused


@needs_node
def test_the_session_decides_about_access_as_in_openclaw(place):
    direct, group = "agent:main:main", "agent:main:discord:group:7"
    with serving(place.settings) as url:
        in_direct, in_group, elsewhere = host(
            {"url": url},
            search("cents", agentId="main", sessionKey=direct),
            search("cents", agentId="main", sessionKey=group),
            search("cents", sessionKey=group),
        )["answers"]

    assert [hit["path"] for hit in in_direct["results"]] == ["MEMORY.md"]
    assert in_group["results"] == elsewhere["results"] == []


@needs_node
def test_all_agents_can_have_the_memory_of_one(place):
    with serving(place.settings) as url:
        (found,) = host(
            {"url": url, "agent": "main"}, search("cents", agentId="work", sessionKey="agent:work:main")
        )["answers"]

    assert [hit["path"] for hit in found["results"]] == ["MEMORY.md"]


@needs_node
def test_the_token_comes_from_the_configuration_or_a_variable(place, monkeypatch):
    token = "a-token-of-tests"
    settings = replace(place.settings, serve=Serve(token=token))
    monkeypatch.setenv("MY_TOKEN", token)
    with serving(settings) as url:
        (without,) = host({"url": url}, search("cents"))["answers"]
        (plain,) = host({"url": url, "token": token}, search("cents"))["answers"]
        (named,) = host({"url": url, "token": "${MY_TOKEN}"}, search("cents"))["answers"]

    assert without["disabled"] and "token" in without["action"]
    assert [len(each["results"]) for each in (plain, named)] == [1, 1]


@needs_node
def test_without_memline_the_agent_is_told_so(away):
    found, read = host({"url": away}, search("cents"), get("MEMORY.md"))["answers"]

    error = f"{away} cannot be reached (ECONNREFUSED)"
    told = {
        "disabled": True,
        "unavailable": True,
        "error": error,
        "warning": f"Memory is unavailable: {error}",
        "action": "start it: memline serve",
    }
    assert found == {"results": [], **told}
    assert read == {"path": "MEMORY.md", "text": "", **told}


@needs_node
@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (500, b'{"error": "broken"}', {}),
        (502, b"<html>", {}),
        (200, b"<html>", {}),
        (200, b"[1]", {"content-length": "9"}),
        (307, b"", {"location": "http://127.0.0.1:9/"}),
        (503, b'{"error": "busy", "hint": "later"}', {"retry-after": "1"}),
    ],
)
def test_an_answer_that_is_none_is_no_answer(status, body, headers):
    with answering(status, body, headers=headers) as url:
        (found,) = host({"url": url, "timeoutSeconds": 60}, search("cents"))["answers"]

    assert found["results"] == [] and found["disabled"] is True
    assert found["error"] and found["action"]


@needs_node
def test_over_mcp_one_process_serves_a_session(place):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from memline.producers.start import main; main()"
    command = [sys.executable, "-c", code, *place.arguments()]
    group = {"agentId": "main", "sessionKey": "agent:main:discord:group:7"}

    found, read, again, in_group, refused = host(
        {"command": command, "timeoutSeconds": 100},
        search("cents"),
        get("MEMORY.md#L3"),
        search("ERR_CONN_42"),
        search("cents", **group),
        {"tool": "memory_search", "params": {"query": 7}},
    )["answers"]

    assert [hit["path"] for hit in found["results"]] == ["MEMORY.md"]
    assert read["text"] == "Invoices are whole cents."
    assert [hit["path"] for hit in again["results"]] == ["memory/2026-02-10.md"]
    assert in_group["results"] == []
    assert "query: 7 is not allowed, but: a text" in refused["error"] and "disabled" not in refused


@needs_node
@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["/nonexistent/memline"], "/nonexistent/memline cannot be started (ENOENT)"),
        ([sys.executable, "-c", "import sys; sys.exit('no such agent')"], "no such agent"),
        ([sys.executable, "-c", "import sys; sys.stdin.read()"], "did not answer within 1 s"),
        (
            [sys.executable, "-c", "print('{}\\n[]\\nnull\\nx', flush=True); import sys; sys.stdin.read()"],
            "within 1 s",
        ),
    ],
)
def test_a_command_that_does_not_work_is_told(command, error):
    (found,) = host({"command": command, "timeoutSeconds": 1 if "1 s" in error else 60}, search("cents"))[
        "answers"
    ]

    assert found["results"] == [] and found["disabled"] is True
    assert error in found["error"]


@needs_openclaw
@pytest.mark.parametrize("layout", ["early", "newest"])
@pytest.mark.parametrize("is_running", [True, False])
def test_the_real_program_loads_it_and_its_agent_gets_the_answers(place, tmp_path, away, layout, is_running):
    home = tmp_path / "user"
    (home / ".openclaw").mkdir(parents=True)
    # The newest offers most tools by way of a catalogue.
    asked = {"query": "why whole cents"}
    called = (
        ("memory_search", asked)
        if layout == "early"
        else ("tool_call", {"id": "memory_search", "args": asked})
    )
    call = {"name": called[0], "arguments": json.dumps(called[1])}
    with serving(place.settings) as url, ChatServer() as chat:
        chat.answers = [streamed("", call=call)]
        chat.answer = streamed("Because of the cents.")
        content = chat_models(chat.url) | {
            "plugins": {
                "load": {"paths": [str(PLUGIN)]},
                "slots": {"memory": "memline"},
                "entries": {
                    "memline": {"enabled": True, "config": {"url": url if is_running else away}},
                    "memory-core": {"enabled": False},
                },
            }
        }
        (home / ".openclaw/openclaw.json").write_text(json.dumps(content))

        talk(layout, home, "first", "Why whole cents?")

    offered = json.dumps(chat.requests[0])
    for name in ("memory_search", "memory_get"):
        assert (f'"name": "{name}"' if layout == "early" else f"- {name} (memline): ") in offered
    (result,) = [each for each in chat.requests[-1]["messages"] if each["role"] == "tool"]
    text = json.dumps(result["content"]).replace("\\", "")
    if is_running:
        assert "Invoices are whole cents." in text and "MEMORY.md#L1-L3" in text
    else:
        assert '"disabled": true' in text and "start it: memline serve" in text
