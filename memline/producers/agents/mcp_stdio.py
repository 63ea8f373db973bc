"""Serve an agent's memory as MCP tools to one client, over standard input and output."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from memline.producers.agents.mcp import server, unreadable, whole_message
from memline.producers.agents.pool import Pool
from memline.producers.agents.tools import Caller, MemoryTools
from memline.shared.errors import MemlineError
from memline.shared.logs import Log
from memline.shared.packages import install_command

#: Calls at a time of a client on standard input; it has rarely more than one running.
STDIO_THREADS = 4

#: Seconds for such a call; clients themselves give up after about a minute.
STDIO_TIMEOUT_S = 60.0

#: Seconds that answers may take after a client on standard input has closed its side.
DRAIN_TIMEOUT_S = 15.0


def run_stdio(tools: MemoryTools, caller: Caller) -> None:
    """Serve one client over standard input and output until it closes its side and has its answers."""

    async def serve() -> None:
        pool = Pool(STDIO_THREADS, timeout_s=STDIO_TIMEOUT_S)
        made = server(tools, lambda _: caller, pool=pool)
        await _serve_stdio(_lowlevel(made))

    try:
        anyio.run(serve)
    except* (anyio.BrokenResourceError, BrokenPipeError):
        # The client went away in the middle of an answer, and waits for no other.
        Log("mcp").info("client.gone")


class InFlightRequests:
    """The requests that a client waits for, by their ids."""

    def __init__(self) -> None:
        self._ids: set[int | str | None] = set()
        self._changed = anyio.Event()

    def received(self, message: SessionMessage) -> None:
        """Track a message of the client: a request, or the cancellation of one."""
        body = message.message
        if isinstance(body, JSONRPCRequest):
            self._ids.add(body.id)
        elif isinstance(body, JSONRPCNotification) and body.method == "notifications/cancelled":
            self._remove((body.params or {}).get("requestId"))

    def sent(self, message: SessionMessage) -> None:
        """Track a message to the client: an answer ends its request."""
        if isinstance(message.message, JSONRPCResponse | JSONRPCError):
            self._remove(message.message.id)

    async def wait(self) -> None:
        """Wait until no request is in flight, DRAIN_TIMEOUT_S at most."""
        with anyio.move_on_after(DRAIN_TIMEOUT_S):
            while self._ids:
                await self._changed.wait()

    def _remove(self, request_id: int | str | None) -> None:
        self._ids.discard(request_id)
        self._changed.set()
        self._changed = anyio.Event()


async def _serve_stdio(lowlevel: Server[Any]) -> None:
    """Serve standard input and output, and send all answers before the end.

    The SDK takes the end of the input for the end of everything and drops the calls that are running: after
    `printf … | memline mcp` their answers, and whether an entry was written, would never be known. So the end
    of the input reaches the SDK only when no request is in flight.
    """
    requests = InFlightRequests()
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as tasks:

        async def read() -> None:
            async with to_server:
                async for message in incoming:
                    if isinstance(message, Exception) and (mended := _mended(message)) is not None:
                        message = mended
                    if isinstance(message, Exception):
                        # The SDK drops it, and the client would wait for an answer.
                        Log("mcp").warning("line.unreadable", kind=type(message).__name__)
                        await outgoing.send(SessionMessage(unreadable(message)))
                        continue
                    requests.received(message)
                    await to_server.send(message)
                await requests.wait()

        async def write() -> None:
            async with outgoing, from_server:
                async for message in from_server:
                    await outgoing.send(message)
                    requests.sent(message)

        tasks.start_soon(read)
        tasks.start_soon(write)
        async with to_client:
            await lowlevel.run(from_client, to_client, lowlevel.create_initialization_options())


def _mended(error: Exception) -> SessionMessage | None:
    """Read the line of an error again, without halves of characters; None when it is no message either."""
    line = error.errors()[0]["input"] if isinstance(error, ValidationError) else None
    with suppress(ValueError):
        if isinstance(line, str):
            return SessionMessage(
                jsonrpc_message_adapter.validate_json(whole_message(line.encode()), by_name=False)
            )
    return None


def _lowlevel(made: MCPServer[Any]) -> Server[Any]:
    """Return the SDK's inner server: it has no public way to serve streams of ours."""
    try:
        return made._lowlevel_server
    except AttributeError as error:
        raise MemlineError(
            "the installed version of the package mcp is not supported", hint=install_command("mcp>=2.3,<2.4")
        ) from error
