"""The HTTP API as clients and others meet it: answers, refusals, limits, slow and hostile requests."""

import json
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.support.http_api import refused, serving


@pytest.fixture
def client(notes):
    with serving(notes.settings) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


@pytest.mark.parametrize("tag", [",", "ops,boat", "#", "2026"])
def test_a_filter_by_what_is_not_a_tag_is_refused_in_the_same_words_on_every_face(client, notes, tag):
    asked = {"query": "invoices", "tag": tag}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body["params"] = {"name": "memory_search", "arguments": asked}

    by_url = refused(client.get("/search", params=asked), 400)
    by_body = refused(client.post("/search", json={**asked, "tag": [tag]}), 400)
    by_mcp = client.post("/mcp", json=body, headers={"accept": "application/json, text/event-stream"})
    by_command = notes.call("search", "invoices", "--tag", tag)

    assert by_url == by_body == f"{tag!r} is not a tag | give a tag such as boat or boat/dinghy"
    assert f"{tag!r} is not a tag" in by_mcp.json()["result"]["content"][0]["text"]
    assert by_command.status == 2
    assert f"{tag!r} is not a tag" in by_command.stderr


def test_the_server_says_that_it_is_there_and_ready(client, notes):
    assert client.get("/health").json()["status"] == "ok"
    assert client.get("/ready").json() == {"status": "ready"}
    client.get("/search", params={"query": "x"})
    notes.index_path.write_bytes(b"SQLite format 3\0" + b"garbage" * 200)
    assert "an index cannot be read" in refused(client.get("/ready"), 503)
    assert str(notes.index_path) not in client.get("/ready").text


WRONG_REQUESTS: list[tuple[str, Any, int, str]] = [
    ("/search", {}, 400, "query is missing"),
    ("/search", {"query": "q", "maxresults": "3"}, 400, "write maxResults instead"),
    ("/search", {"query": "q", "maxResults": "three"}, 400, "a whole number | correct maxResults"),
    ("/search", {"query": "q", "since": "then"}, 400, "a date such as 2026-02-10"),
    ("/search", [("query", "a"), ("query", "b")], 400, "query: ["),
    ("/search", {"query": "q", "agent": "nobody"}, 404, "name one of these: main"),
    ("/search", {"query": "q", "agent": "../x"}, 404, "there is no agent '../x'"),
    ("/get", {"path": "../../etc/passwd"}, 403, "path is not an allowed Markdown memory file"),
    ("/get", {"path": "/etc/nothing-there"}, 403, "path is not an allowed Markdown memory file"),
    ("/append", {}, 405, "docs/agents.md lists"),
    ("/nothing", {}, 404, "Not Found | docs/agents.md"),
    ("/search/", {"query": "q"}, 404, "docs/agents.md"),
    ("/mcp", {}, 405, "docs/agents.md lists"),
]


def test_a_wrong_request_is_refused_with_a_hint(client):
    for path, params, status, said in WRONG_REQUESTS:
        assert said in refused(client.get(path, params=params), status)


WRONG_BODIES = [
    (b'{"query"', "application/json", 400, "the body is not valid JSON"),
    (b"[]", "application/json", 400, "not a JSON object"),
    (b"[" * 50_000, "application/json", 400, "the body is not valid JSON"),
    (b"\xff\xfe\x00", "application/json", 400, "the body is not valid JSON"),
    (b'{"query": "q"}', "text/plain", 415, "the body has to be JSON, and its type application/json"),
    (b'{"query": {}}', "application/json", 400, "query: {} is not allowed, but: a text"),
    (b'{"query": "q", "\\ud800": 1}', "application/json", 400, "there is no parameter"),
    (b'{"query": "q", "source": "\\ud800"}', "application/json", 400, "but: all, memory, sessions"),
    (b'{"query": "' + b"x" * 1_100_000 + b'"}', "application/json", 413, "larger than 1048576 bytes"),
]


def test_a_wrong_body_is_refused(client):
    for body, kind, status, said in WRONG_BODIES:
        assert said in refused(client.post("/search", content=body, headers={"content-type": kind}), status)


@pytest.mark.parametrize("half", ["\ud800", "\udc00"])
def test_half_a_character_is_no_error_of_the_server(notes, half):
    bodies = [
        ("/search", {"query": f"cents {half}"}, 200),
        ("/search", {"query": "cents", "tag": [half]}, 200),
        ("/search", {"query": "cents", "sessionKey": half, "path": half}, 200),
        ("/get", {"path": half}, 403),
        ("/get", {"paths": [half, "MEMORY.md"]}, 200),
    ]

    with serving(notes.settings) as url:
        for path, body, status in bodies:
            answer = httpx.post(f"{url}{path}", content=json.dumps(body), headers=JSON, timeout=120)
            assert answer.status_code == status, answer.text


JSON = {"content-type": "application/json"}


def test_a_body_without_a_length_is_cut_off_at_the_limit(client):
    def chunks(count):
        for _ in range(count):
            yield b" " * 1_000

    assert "larger" in refused(client.post("/search", content=chunks(1_500), headers=JSON), 413)
    # Far above the limit the server hangs up before all is sent; what the client then sees is its own affair.
    with suppress(httpx.TransportError):
        assert "larger" in refused(client.post("/search", content=chunks(20_000), headers=JSON), 413)
    assert client.get("/health").status_code == 200
