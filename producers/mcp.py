"""The MCP server: an agent's memory as tools, over standard input and output or HTTP.

With `mcp_stdio` the only module that knows the MCP SDK. Arguments are checked by `MemoryTools`, not by the
SDK, so that every face says the same words; an error reaches the model with what to do about it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ConfigDict, Field
from starlette.types import Receive, Scope, Send

from producers import contract, mcp_stdio, tool_texts
from producers.memory_tools import Caller, MemoryTools
from producers.pool import Pool
from producers.version import own_version
from shared.errors import MemlineError
from shared.logs import Log
from shared.search import parameters

#: Where what a session starts with can be read without a tool.
CONTEXT_URI = "memory://context"

#: Seconds for a call of a client on standard input; clients themselves give up after about a minute.
STDIO_TIMEOUT_S = 60.0

_READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_WRITES = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)

#: The caller of a request: over HTTP its token and its headers say who that is.
CallerOf = Callable[[Any], Caller]

Call = Callable[[Caller, Mapping[str, Any]], dict[str, Any]]


class MemoryTool(Tool):
    """A tool that answers with a call of `MemoryTools`, in a thread so that nobody else waits for it."""

    call: Call = Field(exclude=True)
    caller_of: CallerOf = Field(exclude=True)
    pool: Pool = Field(exclude=True)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> Any:
        """The answer, as JSON in a text and as structured content; an error is words for the model."""
        try:
            caller = self.caller_of(context.request_context.request)
            answer = await self.pool.run(partial(self.call, caller, arguments))
        except MemlineError as error:
            return _refusal(error.message, error.hint)
        except Exception as error:
            # The boundary to the client: it must not see the inside, and the log must.
            Log("mcp").exception("tool.failed", tool=self.name, kind=type(error).__name__)
            return _refusal(
                f"{self.name} failed unexpectedly ({type(error).__name__})",
                "try once more; if it fails again, tell the user to run: memline doctor",
            )
        return CallToolResult(
            content=[TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))],
            structured_content=answer,
        )


def server(tools: MemoryTools, caller_of: CallerOf, *, pool: Pool, writes: bool) -> MCPServer[Any]:
    """An MCP server of these tools. `writes`: whether memory_append is among them."""
    make = partial(_tool, caller_of=caller_of, pool=pool)
    listed: list[Tool] = [
        make(
            "memory_search",
            "Search memory",
            tool_texts.SEARCH,
            tools.search,
            parameters.SEARCH,
            contract.SEARCH,
        ),
        make("memory_get", "Read a note", tool_texts.GET, tools.get, parameters.GET, contract.GET),
        make(
            "memory_status",
            "State of memory",
            tool_texts.STATUS,
            tools.status,
            parameters.STATUS,
            contract.STATUS,
        ),
    ]
    if writes:
        listed.append(
            make(
                "memory_append",
                "Remember something",
                tool_texts.APPEND,
                tools.append,
                parameters.APPEND,
                contract.APPEND,
                annotations=_WRITES,
            )
        )
    made: MCPServer[Any] = MCPServer(
        "memline",
        title="Memline memory",
        description="Long-term memory of an agent, with citations",
        instructions=tool_texts.INSTRUCTIONS,
        version=own_version(),
        tools=listed,
        log_level="WARNING",
        subscriptions=False,
    )
    _add_prompt(made, tools, caller_of, pool)
    return made


class HttpEndpoint:
    """The server over streamable HTTP, as an ASGI application for one path; it serves while `running`.

    Each request stands for itself: nothing is kept of a client between two.
    """

    def __init__(self, made: MCPServer[Any], *, max_body_bytes: int) -> None:
        # Made for its session manager. Who may ask is decided in front of it.
        made.streamable_http_app(
            stateless_http=True,
            json_response=True,
            max_request_body_size=max_body_bytes,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._manager = made.session_manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve as long as this is open; once only."""
        return self._manager.run()


def run_stdio(tools: MemoryTools, caller: Caller, *, threads: int, writes: bool) -> None:
    """Serve one client over standard input and output until it goes away."""

    async def serve() -> None:
        pool = Pool(threads, timeout_s=STDIO_TIMEOUT_S)
        made = server(tools, lambda _: caller, pool=pool, writes=writes)
        _add_resource(made, tools, caller, pool)
        await mcp_stdio.serve(made._lowlevel_server)

    anyio.run(serve)


def _tool(
    name: str,
    title: str,
    description: str,
    call: Call,
    takes: tuple[parameters.Parameter, ...],
    gives: dict[str, Any],
    *,
    caller_of: CallerOf,
    pool: Pool,
    annotations: ToolAnnotations = _READS,
) -> MemoryTool:
    return MemoryTool(
        fn=call,
        name=name,
        title=title,
        description=description,
        parameters=parameters.input_schema(takes),
        # The schema alone: the SDK neither checks the arguments nor shapes the answer.
        fn_metadata=FuncMetadata(arg_model=ArgModelBase, output_schema=gives),
        is_async=False,
        context_kwarg=None,
        annotations=annotations,
        call=call,
        caller_of=caller_of,
        pool=pool,
    )


def _add_prompt(made: MCPServer[Any], tools: MemoryTools, caller_of: CallerOf, pool: Pool) -> None:
    @made.prompt(
        name="session_context",
        title="Where we were",
        description="What to know when a session starts: the daily logs of today and yesterday."
        " private: true adds MEMORY.md, for a session with the owner alone.",
    )
    async def session_context(context: Context[Any, Any], private: bool = False) -> str:
        given = {"private": private}
        try:
            caller = caller_of(context.request_context.request)
            found = await pool.run(partial(tools.context, caller, given))
        except MemlineError as error:
            return _words(error.message, error.hint)
        return str(found["text"]) or "There is nothing in the logs of today and yesterday."


def _add_resource(made: MCPServer[Any], tools: MemoryTools, caller: Caller, pool: Pool) -> None:
    @made.resource(
        CONTEXT_URI,
        name="session-context",
        title="Where we were",
        description="The daily logs of today and yesterday: what to know when a session starts.",
        mime_type="text/markdown",
    )
    async def context() -> str:
        try:
            found = await pool.run(partial(tools.context, caller, {}))
        except MemlineError as error:
            raise ResourceError(_words(error.message, error.hint)) from error
        return str(found["text"])


def _refusal(message: str, hint: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=_words(message, hint))], is_error=True)


def _words(message: str, hint: str) -> str:
    # A client may have sent lone surrogates, which cannot be sent back.
    said = f"{message}. What to do: {hint}" if hint else message
    return said.encode("utf-8", "replace").decode()
