"""What a server for agents lacks, it says in every answer, with a command that works as it is typed."""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.from_thread
import httpx
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult

from tests.support.embedding_server import EmbeddingServer
from tests.support.process import ROOT, TIMEOUT_S, end, memline, running_memline
from tests.support.workspace import remote, until

#: Asks one tool: its name without `memory_`, and its arguments.
Ask = Callable[..., dict[str, Any]]


@contextmanager
def over_mcp(*options):
    """`memline mcp`, and its official client."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from memline.producers.start import main; main()", *options, "mcp"],
        env={"PYTHONPATH": str(ROOT), "HOME": os.environ["HOME"]},
    )
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(parameters))) as client,
    ):

        async def call(tool, arguments):
            with anyio.fail_after(TIMEOUT_S):
                result = await client.call_tool(f"memory_{tool}", arguments)
            assert isinstance(result, CallToolResult) and result.structured_content
            return result.structured_content

        yield lambda tool, **arguments: portal.call(call, tool, arguments)


@contextmanager
def over_http(*options):
    """`memline serve`, and requests."""
    with running_memline(*options, "serve", "--port", "0") as process:
        assert process.stderr
        (url,) = re.findall(r"http://[^\s/]+", process.stderr.readline())
        yield lambda tool, **arguments: httpx.get(f"{url}/{tool}", params=arguments, timeout=TIMEOUT_S).json()
        end(process)


@pytest.fixture
def embeddings():
    with EmbeddingServer() as running:
        yield running


@pytest.mark.parametrize("face", [over_mcp, over_http])
def test_a_server_brings_changes_in_and_names_what_embeds_them(place, embeddings, face, tmp_path):
    place.configure(**remote(embeddings.url))
    place.write("MEMORY.md", "Invoices are whole cents.\n")

    with face(*place.arguments()) as ask:
        first, status = ask("search", query="cents"), ask("status")
        # The note is found by its words at once; that nothing is embedded yet is in every answer.
        assert [hit["path"] for hit in first["results"]] == ["MEMORY.md"]
        for answer in (first, ask("search", query="cents"), status):
            assert answer["stale"]
            assert (answer["behind"]["files"], answer["behind"]["vectors"]) == (0, 1)
            assert answer["action"].startswith(f"memline {shlex.join(place.arguments())} --workspace ")
        # The user types it, in another folder.
        words = shlex.split(first["action"].partition(",")[0])[1:]
        assert memline(*words).status == 0
        after = ask("search", query="cents")
        assert (after["stale"], after.get("action", ""), after["mode"]) == (False, "", "hybrid")
        place.write("memory/new.md", "The umbrella is in the cellar.\n")
        # Within the tenth of a second after a look, a search trusts it.
        until(lambda: ask("search", query="umbrella")["results"], "the new note")
        changed = ask("search", query="umbrella")
        assert changed["results"][0]["path"] == "memory/new.md"
        assert (changed["stale"], changed["behind"]["vectors"]) == (True, 1)
        assert shlex.join(place.arguments()) in changed["action"]


def test_hints_name_the_agent_that_is_not_the_default_one(place, embeddings):
    place.write("MEMORY.md", "Invoices are whole cents.\n")
    agents = {
        "defaults": {"workspace": str(place.workspace), "memorySearch": remote(embeddings.url)},
        "list": [{"id": "main"}, {"id": "work", "workspace": str(place.workspace)}],
    }
    place.config.write_text(json.dumps({"agents": agents}))

    with over_mcp(*place.arguments("--agent", "work")) as ask:
        answer = ask("status")

    assert " --agent work index" in answer["action"]
