"""MCP over standard input and output that answers what was asked before the client closed its side.

The SDK takes the end of the input for the end of everything and drops the calls that are running: after
`printf … | memline mcp` their answers, and whether an entry was written, would never be known.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

#: Seconds that answers may take once nobody can ask any more.
PATIENCE_S = 15.0

Heard = SessionMessage | Exception


async def serve(server: Server[Any]) -> None:
    """Serve one client until it has closed its side and has its answers."""
    unanswered = Unanswered()
    async with stdio_server() as (incoming, outgoing):
        await server.run(
            _Incoming(incoming, unanswered),
            _Outgoing(outgoing, unanswered),
            server.create_initialization_options(),
        )


class Unanswered:
    """The requests that a client waits for, by their ids."""

    def __init__(self) -> None:
        self._ids: set[int | str] = set()
        self._fewer = anyio.Event()

    def heard(self, message: Heard) -> None:
        """Take notice of a message of the client: it asks, or it does not want an answer any more."""
        said = message.message if isinstance(message, SessionMessage) else None
        if isinstance(said, JSONRPCRequest):
            self._ids.add(said.id)
        elif isinstance(said, JSONRPCNotification) and said.method == "notifications/cancelled":
            self._settled((said.params or {}).get("requestId"))

    def answered(self, message: SessionMessage) -> None:
        """Take notice of a message to the client."""
        if isinstance(message.message, JSONRPCResponse | JSONRPCError):
            self._settled(message.message.id)

    async def wait(self) -> None:
        """Wait until nothing is unanswered, but not for ever."""
        with anyio.move_on_after(PATIENCE_S):
            while self._ids:
                await self._fewer.wait()

    def _settled(self, number: int | str | None) -> None:
        if number is not None:
            self._ids.discard(number)
        self._fewer.set()
        self._fewer = anyio.Event()


class _Incoming:
    """What the client says; it ends when the client has all its answers."""

    def __init__(self, stream: ReadStream[Heard], unanswered: Unanswered) -> None:
        self._stream = stream
        self._unanswered = unanswered

    async def receive(self) -> Heard:
        try:
            message = await self._stream.receive()
        except anyio.EndOfStream:
            await self._unanswered.wait()
            raise
        self._unanswered.heard(message)
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Heard:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Outgoing:
    """What is said to the client."""

    def __init__(self, stream: WriteStream[SessionMessage], unanswered: Unanswered) -> None:
        self._stream = stream
        self._unanswered = unanswered

    async def send(self, item: SessionMessage, /) -> None:
        await self._stream.send(item)
        self._unanswered.answered(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
