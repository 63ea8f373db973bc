"""Serve an agent's memory as MCP tools: over HTTP, and in `mcp_stdio` over standard input and output.

No other module knows the MCP SDK. Arguments are checked by `MemoryTools`, not by the SDK, so that every face
reports the same errors; an error reaches the model with what to do about it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver import server as sdk_server
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.server.mcpserver.prompts.base import Prompt, PromptArgument
from mcp.server.mcpserver.resources import ResourceSecurity
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from pydantic import ConfigDict, Field, ValidationError
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memline.producers.agents.pool import Pool
from memline.producers.agents.tools import Caller, MemoryTools
from memline.producers.calls.arguments import answers, input_schema, parse_texts
from memline.producers.calls.memory_calls import CONTEXT, INSTRUCTIONS, MEMORY_CALLS
from memline.producers.calls.rows import Call
from memline.shared.errors import BadRequest, MemlineError
from memline.shared.figures.counters import MCP
from memline.shared.logs import Log
from memline.shared.values import replace
from memline.shared.version import own_version
from memline.shared.visible_text import in_json

# It would load rich, 4 times a bare Python, to set up a log that `logs.configure` has set up already.
vars(sdk_server)["configure_logging"] = lambda _level: None

#: Where what a session starts with can be read without a tool.
CONTEXT_URI = "memory://context"

#: Where a note can be read without a tool, and the most that is given of it, in characters.
NOTE_TEMPLATE = "memory://note/{+path}"
MAX_NOTE_CHARS = 100_000

#: Escapes in JSON; the group is half of a character that stands alone. A client that cut a text in the middle
#: of an emoji sends one, the SDK refuses the message, and the client would wait for its answer.
_ESCAPES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)

#: The request for which a resource is read.
_READ_FOR: ContextVar[Any] = ContextVar("read_for", default=None)

#: The caller of a request: over HTTP its token and its headers name it.
CallerOf = Callable[[Any], Caller]


class MemoryTool(Tool):
    """A tool that answers with a call of `MemoryTools`, in a thread so that no other call waits for it."""

    caller_of: CallerOf = Field(exclude=True)
    pool: Pool = Field(exclude=True)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> Any:
        """Return the answer, as JSON in a text and as structured content; an error is words for the model."""
        try:
            caller = self.caller_of(context.request_context.request)
            answer = await self.pool.run(partial(self.fn, replace(caller, face=MCP), arguments))
        except MemlineError as error:
            text = _error_text(error.message, error.hint)
        except Exception as error:
            # The boundary to the client: it must not see the inside, and the log must.
            Log("mcp").exception("tool.failed", tool=self.name, kind=type(error).__name__)
            text = _error_text(
                f"{self.name} failed unexpectedly ({type(error).__name__})",
                "try once more; if it fails again, tell the user to run: memline doctor",
            )
        else:
            plain = TextContent(type="text", text=in_json(json.dumps(answer, ensure_ascii=False)))
            return CallToolResult(content=[plain], structured_content=answer)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


class MemoryServer(MCPServer[Any]):
    """Knows for which request a resource is read, and refuses what is not there as a slip of the client's."""

    #: Whether the caller of a request may write notes.
    may_write: Callable[[Any], bool]

    async def _handle_list_tools(
        self, ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """List what the caller may call; the public `list_tools` does not know for whom it lists."""
        tools = await self.list_tools()
        if not self.may_write(ctx.request):
            tools = [each for each in tools if each.annotations and each.annotations.read_only_hint]
        return ListToolsResult(tools=tools)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> Any:
        """Call a tool; the SDK would answer for one that is not there as if it had failed."""
        names = [tool.name for tool in await self.list_tools()]
        if name not in names:
            raise MCPError(
                INVALID_PARAMS,
                _error_text(f"there is no tool {name[:80]!r}", f"call one of these: {', '.join(names)}"),
            )
        return await super().call_tool(name, arguments, context)

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> Any:
        """Return a prompt; the SDK logs one that is not there as a fault of ours."""
        if name not in {prompt.name for prompt in await self.list_prompts()}:
            raise MCPError(INVALID_PARAMS, f"there is no prompt {name[:80]!r}")
        return await super().get_prompt(name, arguments, context)

    async def read_resource(self, uri: Any, context: Context[Any, Any] | None = None) -> Any:
        """Return the content of a resource."""
        token = _READ_FOR.set(context.request_context.request if context else None)
        try:
            return await super().read_resource(uri, context)
        finally:
            _READ_FOR.reset(token)


def server(tools: MemoryTools, caller_of: CallerOf, *, pool: Pool) -> MCPServer[Any]:
    """Make an MCP server of these tools; memory_append is listed to callers that may write."""
    writes = any(tools.memory(agent).settings.memory.append.enabled for agent in tools.agents)
    calls = [call for call in MEMORY_CALLS if call.tool and (writes or not call.audit)]
    schemas = answers()
    made = MemoryServer(
        "memline",
        title="Memline memory",
        description="Long-term memory of an agent, with citations",
        instructions=INSTRUCTIONS,
        version=own_version(),
        tools=[_tool(call, schemas[call.answer], tools, caller_of, pool) for call in calls],
        log_level="WARNING",
        subscriptions=False,
    )

    def may_write(request: Any) -> bool:
        try:
            caller = caller_of(request)
            return tools.memory(caller.agent).settings.memory.append.enabled
        except MemlineError:
            # A call says why it is refused.
            return False

    made.may_write = may_write

    async def session_context(context: Context[Any, Any], **arguments: str) -> str:
        try:
            caller = caller_of(context.request_context.request)
            given = parse_texts(CONTEXT.takes_json, arguments)
            answer = await pool.run(partial(tools.context, caller, given))
        except BadRequest as error:
            raise MCPError(INVALID_PARAMS, _error_text(error.message, error.hint)) from error
        except MemlineError as error:
            return _error_text(error.message, error.hint)
        return str(answer["text"]) or "There is nothing in the logs of today and yesterday."

    made.add_prompt(
        Prompt(
            name="session_context",
            title="Where we were",
            description="What to know when a session starts: the daily logs of today and yesterday."
            " private: true adds MEMORY.md, for a session with the owner alone.",
            arguments=[
                PromptArgument(name=each.name, description=each.description, required=each.is_required)
                for each in CONTEXT.takes_json
            ],
            fn=session_context,
            context_kwarg="context",
        )
    )

    @made.resource(
        CONTEXT_URI,
        name="session-context",
        title="Where we were",
        description="The daily logs of today and yesterday: what to know when a session starts.",
        mime_type="text/markdown",
    )
    async def context() -> str:
        try:
            answer = await pool.run(partial(tools.context, caller_of(_READ_FOR.get()), {}))
        except MemlineError as error:
            raise ResourceError(_error_text(error.message, error.hint)) from error
        return str(answer["text"])

    @made.resource(
        NOTE_TEMPLATE,
        name="note",
        title="A note",
        description="A note of this memory by its path, as memory_search gives it: memory/2026-02-10.md.",
        mime_type="text/markdown",
        # What may be read is decided by the same rules as for memory_get.
        security=ResourceSecurity(exempt_params={"path"}),
    )
    async def note(path: str) -> str:
        try:
            return await pool.run(partial(_whole_note, tools, caller_of(_READ_FOR.get()), path))
        except MemlineError as error:
            raise MCPError(INVALID_PARAMS, _error_text(error.message, error.hint)) from error

    return made


def _whole_note(tools: MemoryTools, caller: Caller, path: str) -> str:
    """Read a note as memory_get does, on and on. Raises a MemlineError, also when there is no such note."""
    parts: list[str] = []
    first: int | None = 1
    while first is not None and sum(map(len, parts)) < MAX_NOTE_CHARS:
        part = tools.get(caller, {"path": path, "from": first, "lines": MAX_NOTE_CHARS})
        if part["status"] != "ok":
            raise BadRequest(f"there is no note {path[:200]!r}", hint="use a path as memory_search gives it")
        parts.append(part["text"] + "\n[line cut here]" * part["cut"])
        first = part["nextFrom"]
    rest = "" if first is None else f"\n[cut here: memory_get {path} from {first} has the rest]"
    return "\n".join(parts) + rest


def http_endpoint(
    made: MCPServer[Any], *, max_body_bytes: int
) -> tuple[ASGIApp, AbstractAsyncContextManager[None]]:
    """Return the server over streamable HTTP: an application for one path, and the context in which it works.

    Requests are independent: nothing is kept of a client between two.
    """
    # Access is decided in front of it.
    app = made.streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=max_body_bytes,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    (route,) = (each for each in app.routes if isinstance(each, Route))
    return MessageCheck(route.endpoint), made.session_manager.run()


class MessageCheck:
    """Answers a text that is no message with an error of ours.

    A class, because Starlette takes a function for an endpoint of another kind.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Behind the guard the whole body is one message.
        body = whole_message((message := await receive()).get("body", b""))
        messages = [{**message, "body": body}]
        try:
            jsonrpc_message_adapter.validate_json(body, by_name=False)
        except ValueError as error:
            refusal = unreadable(error).model_dump_json(by_alias=True, exclude_unset=True)
            await Response(refusal, 400, media_type="application/json")(scope, receive, send)
            return

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay, send)


def whole_message(body: bytes) -> bytes:
    """Put U+FFFD in the place of each half of a character, in as many bytes."""
    return _ESCAPES.sub(lambda found: rb"\ufffd" if found[1] else found[0], body)


def unreadable(error: Exception) -> JSONRPCError:
    """Make the error that answers a text which is no message; the SDK's words are those of its parser."""
    kinds = (
        {each["type"] for each in error.errors()} if isinstance(error, ValidationError) else {"json_invalid"}
    )
    if "json_invalid" in kinds:
        code, words = PARSE_ERROR, "the message is not valid JSON"
    else:
        code, words = (
            INVALID_REQUEST,
            "the message is JSON, but not a request or notification of JSON-RPC 2.0",
        )
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=words))


def _tool(
    call: Call, answer: dict[str, Any], tools: MemoryTools, caller_of: CallerOf, pool: Pool
) -> MemoryTool:
    return MemoryTool(
        fn=getattr(tools, call.name),
        name=f"memory_{call.name}",
        title=call.title.removesuffix("."),
        description=" ".join(call.tool.split()),
        parameters=input_schema(call.takes_json),
        # The schema alone: the SDK neither checks the arguments nor shapes the answer.
        fn_metadata=FuncMetadata(arg_model=ArgModelBase, output_schema=answer),
        is_async=False,
        context_kwarg=None,
        annotations=ToolAnnotations(
            read_only_hint=not call.audit,
            destructive_hint=False,
            idempotent_hint=not call.audit,
            open_world_hint=False,
        ),
        caller_of=caller_of,
        pool=pool,
    )


def _error_text(message: str, hint: str) -> str:
    # A client may have sent lone surrogates, which cannot be sent back.
    text = f"{message}. What to do: {hint}" if hint else message
    return text.encode("utf-8", "replace").decode()
