"""The HTTP API as clients and others meet it: answers, refusals, limits, slow and hostile requests."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.support.http_api import refused, serving
from tests.support.workspace import Place, until


@pytest.fixture
def client(notes: Place) -> Iterator[httpx.Client]:
    with serving(notes.settings) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def test_a_search_by_url_and_by_body_is_the_same(client: httpx.Client) -> None:
    by_url = client.get("/search", params={"query": "invoices", "maxResults": 3, "source": "all"})
    by_body = client.post("/search", json={"query": "invoices", "maxResults": 3, "corpus": "all"})

    assert by_url.json() == by_body.json()
    assert by_url.json()["results"][0]["citation"] == "MEMORY.md#L1-L3"
    assert by_url.headers["cache-control"] == "no-store"


def test_lines_status_and_context_have_their_shapes(client: httpx.Client) -> None:
    client.get("/search", params={"query": "x"})

    read = client.get("/get", params={"path": "MEMORY.md#L3"}).json()
    assert {"path", "text", "from", "lines", "truncated", "nextFrom", "status", "links"} <= set(read)
    assert {"agentId", "files", "mode", "behind", "findings"} <= set(client.get("/status").json())
    assert "whole cents" in client.get("/context", params={"private": "true"}).json()["text"]


def test_what_takes_several_values_may_be_given_several_times(client: httpx.Client) -> None:
    twice = client.get("/get", params=[("paths", "MEMORY.md"), ("paths", "memory/none.md")]).json()
    once = client.get("/get", params={"paths": "MEMORY.md"}).json()

    assert [each["path"] for each in twice["excerpts"]] == ["MEMORY.md", "memory/none.md"]
    assert [each["path"] for each in once["excerpts"]] == ["MEMORY.md"]


@pytest.mark.parametrize("tag", [",", " , ", "#", "2026"])
def test_a_filter_by_what_is_not_a_tag_is_refused_in_the_same_words_on_every_face(
    client: httpx.Client, notes: Place, tag: str
) -> None:
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


def test_a_saved_note_is_found_by_the_same_server(client: httpx.Client, notes: Place) -> None:
    client.get("/search", params={"query": "umbrella"})

    notes.write("memory/new.md", "The umbrella is in the cellar.\n")

    until(lambda: client.get("/search", params={"query": "umbrella"}).json()["results"], "the note")


def test_the_server_says_that_it_is_there_and_ready(client: httpx.Client, notes: Place) -> None:
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
    ("/append", {}, 405, "see the header Allow"),
    ("/nothing", {}, 404, "not found | docs/agents.md"),
    ("/search/", {"query": "q"}, 404, "docs/agents.md"),
    ("/mcp", {}, 405, "see the header Allow"),
]


def test_a_wrong_request_is_refused_with_a_hint(client: httpx.Client) -> None:
    for path, params, status, said in WRONG_REQUESTS:
        assert said in refused(client.get(path, params=params), status)


def test_a_wrong_method_is_answered_with_all_that_the_address_takes(client: httpx.Client) -> None:
    assert client.put("/search").headers["allow"] == "GET, HEAD, POST"
    assert client.put("/status").headers["allow"] == "GET, HEAD"
    assert client.get("/mcp").headers["allow"] == "POST"


WRONG_BODIES = [
    (b'{"query"', "application/json", 400, "the body is not valid JSON"),
    (b"[]", "application/json", 400, "not a JSON object"),
    (b"[" * 50_000, "application/json", 400, "the body is not valid JSON"),
    (b"\xff\xfe\x00", "application/json", 400, "the body is not valid JSON"),
    (b'{"query": "q"}', "text/plain", 415, "the body has to be JSON | send application/json"),
    (b'{"query": {}}', "application/json", 400, "query: {} is not allowed, but: a text"),
    (b'{"query": "q", "\\ud800": 1}', "application/json", 400, "there is no parameter"),
    (b'{"query": "q", "source": "\\ud800"}', "application/json", 400, "but: all, memory, sessions"),
    (b'{"query": "' + b"x" * 1_100_000 + b'"}', "application/json", 413, "larger than 1048576 bytes"),
]


def test_a_wrong_body_is_refused(client: httpx.Client) -> None:
    for body, kind, status, said in WRONG_BODIES:
        assert said in refused(client.post("/search", content=body, headers={"content-type": kind}), status)


def test_a_question_of_any_characters_is_answered(client: httpx.Client) -> None:
    for query in ("\ud800", "\0", '"', "(" * 500, "💥", "x" * 60_000):
        answer = client.post("/search", content=json.dumps({"query": query}), headers=JSON)
        assert answer.status_code == 200, query[:10]


@pytest.mark.parametrize("half", ["\ud800", "\udc00"])
def test_half_a_character_is_no_error_of_the_server(notes: Place, half: str) -> None:
    bodies: list[tuple[str, dict[str, Any], int]] = [
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


def test_a_body_without_a_length_is_cut_off_at_the_limit(client: httpx.Client) -> None:
    def chunks(count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield b" " * 1_000

    assert "larger" in refused(client.post("/search", content=chunks(1_500), headers=JSON), 413)
    # Far above the limit the server hangs up before all is sent; what the client then sees is its own affair.
    with suppress(httpx.TransportError):
        assert "larger" in refused(client.post("/search", content=chunks(20_000), headers=JSON), 413)
    assert client.get("/health").status_code == 200


def test_another_host_is_not_answered(client: httpx.Client) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:80", "localhost@evil", "", "["):
        assert "Host" in refused(client.get("/status", headers={"host": host}), 421)


def test_the_own_names_are_answered_on_any_port(client: httpx.Client) -> None:
    for host in ("localhost", "127.0.0.1:9999", "[::1]:80", "LOCALHOST"):
        assert client.get("/status", headers={"host": host}).status_code == 200


FOREIGN_PAGES = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:3000"},
    {"sec-fetch-site": "cross-site"},
)


def test_a_page_of_another_origin_is_not_answered(client: httpx.Client) -> None:
    for headers in FOREIGN_PAGES:
        assert "origin" in refused(client.get("/status", headers=headers), 403)
        assert "origin" in refused(client.post("/mcp", json={}, headers=headers), 403)


def test_the_session_decides_about_citations_and_the_long_term_note(client: httpx.Client) -> None:
    group = "agent:main:discord:group:1"

    asked = "invoices and the deploy"
    by_parameter = client.get("/search", params={"query": asked, "sessionKey": group}).json()
    by_header = client.get(
        "/search", params={"query": asked}, headers={"x-memline-session-key": group}
    ).json()

    assert by_parameter == by_header
    assert "citation" not in by_parameter["results"][0]
    # Nor is the long-term note anything for a group.
    assert [hit["path"] for hit in by_parameter["results"]] == ["memory/2026-02-10.md"]
    for given in (
        {"params": {"path": "MEMORY.md", "sessionKey": group}},
        {"params": {"path": "MEMORY.md"}, "headers": {"x-memline-session-key": group}},
    ):
        assert "private" in refused(client.get("/get", **given), 403)


def test_an_entry_is_added_only_where_that_is_allowed(notes: Place, client: httpx.Client) -> None:
    assert "may not write" in refused(client.post("/append", json={"text": "x"}), 403)
    notes.configure(append={"enabled": True})

    with serving(notes.settings) as url, httpx.Client(base_url=url, timeout=120) as writer:
        added = writer.post("/append", json={"text": "Ada prefers tea."}).json()
        hits = writer.get("/search", params={"query": "tea"}).json()["results"]

    assert hits[0]["path"] == added["path"]


def test_many_clients_at_once_all_get_their_own_answer(client: httpx.Client) -> None:
    words = {"cents": "MEMORY.md", "ERR_CONN_42": "memory/2026-02-10.md"}

    def ask(number: int) -> bool:
        word = list(words)[number % 2]
        answer = client.get("/search", params={"query": word}).json()
        return [hit["path"] for hit in answer["results"]] == [words[word]]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(200)))
