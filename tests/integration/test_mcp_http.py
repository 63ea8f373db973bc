"""MCP over HTTP: the official client against the real server, and who may be asked for."""

import json

import anyio
import httpx
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.http_api import serving
from tests.support.mcp_calls import call, words
from tests.support.process import TIMEOUT_S

WORK = "token-for-work"


def talk(url, conversation, **headers):
    async def run():
        with anyio.fail_after(TIMEOUT_S):
            async with (
                httpx2.AsyncClient(headers=headers, timeout=120) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                await conversation(client)

    anyio.run(run)


def test_the_agent_is_the_one_of_the_address_or_the_token(place):
    place.write("MEMORY.md", "Invoices are whole cents.\n")
    place.write("../other/MEMORY.md", "The vault code is 7341.\n")
    listed = [
        {"id": "main", "default": True, "workspace": str(place.workspace)},
        {"id": "work", "workspace": str(place.folder / "other")},
    ]
    place.config.write_text(json.dumps({"agents": {"list": listed}}))

    async def is_work(client):
        assert (await call(client, "memory_search", query="vault")).structured_content["results"]
        assert not (await call(client, "memory_search", query="cents")).structured_content["results"]

    async def is_refused(client):
        refused = await call(client, "memory_search", query="vault")
        assert refused.is_error and "does not open the agent 'main'" in words(refused)

    with serving(place.settings) as url:
        talk(f"{url}/mcp?agent=work", is_work)
    with serving(place.settings, tokens={"work": WORK}) as url:
        talk(f"{url}/mcp", is_work, authorization=f"Bearer {WORK}")
        talk(f"{url}/mcp?agent=main", is_refused, authorization=f"Bearer {WORK}")
        assert httpx.post(f"{url}/mcp", json={}, timeout=120).status_code == 401


def test_a_session_of_another_agent_is_refused(place):
    place.write("MEMORY.md", "Invoices are whole cents.\n")

    async def is_refused(client):
        for tool, arguments in (
            ("search", {"query": "cents"}),
            ("get", {"path": "MEMORY.md"}),
            ("status", {}),
        ):
            refused = await call(client, f"memory_{tool}", **arguments)
            assert refused.is_error and "is of agent 'work', not of 'main'" in words(refused)

    with serving(place.settings) as url:
        talk(f"{url}/mcp?sessionKey=agent:Work:main", is_refused)
        answer = httpx.get(f"{url}/get", params={"paths": "MEMORY.md"}, timeout=120)
        assert answer.json()["excerpts"][0]["text"] == "Invoices are whole cents."


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"no JSON", -32700),
        (b"\xff", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "2.0", "id": 5, "method": 7}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
    ],
)
def test_a_body_that_is_no_message_is_refused_in_words_of_ours(place, body, code):
    place.write("MEMORY.md", "x\n")
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

    with serving(place.settings) as url:
        answer = httpx.post(f"{url}/mcp", content=body, headers=headers, timeout=120)

    refusal = answer.json()
    assert (answer.status_code, refusal["id"], refusal["error"]["code"]) == (400, None, code)
    assert refusal["error"]["message"].startswith("the message is ")
    assert "pydantic" not in answer.text


def test_a_text_that_was_cut_in_the_middle_of_an_emoji_is_taken(place):
    place.write("MEMORY.md", "Invoices are whole cents.\n")
    call = {"name": "memory_search", "arguments": {"query": "cents \ud83d"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    with serving(place.settings) as url, httpx.Client(timeout=120) as client:
        # A client that does not say what it accepts takes anything.
        del client.headers["accept"]
        answer = client.post(f"{url}/mcp", content=body, headers={"content-type": "application/json"})

    assert answer.status_code == 200
    assert answer.json()["result"]["structuredContent"]["results"][0]["path"] == "MEMORY.md"
