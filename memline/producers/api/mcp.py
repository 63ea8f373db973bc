"""Serve the calls of an agent as MCP tools, over HTTP and over standard input and output.

No other module knows the MCP SDK. It takes a request whose id is no text or whole number for a notification,
leaves a line that is no message without an answer, and drops running calls at the end of the input: so every
message is read here first. Arguments are checked by `arguments.check`, for the same errors on every face.
"""

import json
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, cast

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCResponse,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from memline.producers.api.arguments import check, input_schema, whole
from memline.producers.api.calls import INSTRUCTIONS, Caller, Calls, Pool
from memline.shared.errors import MemlineError
from memline.shared.logs import Log
from memline.shared.packages import own_version
from memline.shared.visible_text import in_json

#: The calls that are tools; the last one writes.
TOOLS = ("search", "get", "status", "append")

#: Calls at a time of a client on standard input, and their time limit: clients give up after about a minute.
STDIO_THREADS = 4
STDIO_TIMEOUT_S = 60.0

#: Seconds that answers may take after a client has closed its side of the input.
DRAIN_TIMEOUT_S = 15.0

#: Fields that are left in an answer when they are empty: the answer is about them.
_ALWAYS = {"results", "text"}

#: Finds the caller of a request: over HTTP its token and its headers name it.
CallerOf = Callable[[Any], Caller]


def read_message(line: bytes) -> dict[str, Any] | JSONRPCError:
    """Read a message, with U+FFFD for each half of a character; what is none gets an error as its answer."""
    try:
        body: Any = whole(json.loads(line))
    except (ValueError, RecursionError):
        return _broken(PARSE_ERROR, "the message is not valid JSON")
    wrong = "the message is JSON, but not a request or notification of JSON-RPC 2.0"
    try:
        jsonrpc_message_adapter.validate_python(body, by_name=False)
    except ValueError:
        return _broken(INVALID_REQUEST, wrong)
    if "method" in body and "id" in body and type(body["id"]) not in (int, str):
        return _broken(INVALID_REQUEST, wrong)
    return dict(body)


def _broken(code: int, words: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=words))


def server(calls: Calls, caller_of: CallerOf, *, pool: Pool) -> Server[Any]:
    """Make an MCP server of these calls; memory_append is listed to callers that may write."""

    async def list_tools(
        context: ServerRequestContext[Any, Any], _: PaginatedRequestParams | None
    ) -> ListToolsResult:
        try:
            may_write = calls.may_append(caller_of(context.request))
        except MemlineError:
            # A call says why it is refused.
            may_write = False
        return ListToolsResult(tools=[_tool(name) for name in TOOLS if may_write or name != "append"])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult:
        name = params.name.removeprefix("memory_")
        if name not in TOOLS or name == params.name:
            names = ", ".join(f"memory_{each}" for each in TOOLS)
            raise MCPError(
                INVALID_PARAMS, f"there is no tool {params.name[:80]!r}; call one of these: {names}"
            )
        call = getattr(calls, name)
        try:
            caller = caller_of(context.request)
            arguments = check(getattr(Calls, name), params.arguments or {})
            answer = without_empty(await pool.run(partial(call, caller, **arguments)))
        except MemlineError as error:
            return _refusal(error.message, error.hint)
        except Exception as error:
            # The boundary to the client: it must not see the inside, and the log must.
            kind = type(error).__name__
            Log("mcp").exception("tool.failed", tool=params.name, kind=kind)
            hint = "try once more; if it fails again, tell the user to run: memline doctor"
            return _refusal(f"{params.name} failed unexpectedly ({kind})", hint)
        text = in_json(json.dumps(answer, ensure_ascii=False))
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=answer)

    return Server(
        "memline",
        title="Memline memory",
        description="Long-term memory of an agent, with citations",
        instructions=INSTRUCTIONS,
        version=own_version(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tool(name: str) -> Tool:
    call = getattr(Calls, name)
    reads = name != "append"
    return Tool(
        name=f"memory_{name}",
        description=" ".join(call.__doc__.split()),
        input_schema=input_schema(call),
        annotations=ToolAnnotations(
            read_only_hint=reads, destructive_hint=False, idempotent_hint=reads, open_world_hint=False
        ),
    )


def without_empty(answer: Any) -> Any:
    """Return an answer without fields that are empty: a model pays for each."""
    if isinstance(answer, list):
        return [without_empty(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    shorter = {name: without_empty(each) for name, each in answer.items()}
    return {name: each for name, each in shorter.items() if name in _ALWAYS or each not in (None, "", [], {})}


def _refusal(message: str, hint: str) -> CallToolResult:
    text = f"{message}. What to do: {hint}" if hint else message
    return CallToolResult(content=[TextContent(type="text", text=whole(text))], is_error=True)


class HttpEndpoint:
    """The server over streamable HTTP, for one path; nothing is kept of a client between two requests.

    A class, because Starlette takes a function for an endpoint of another kind. Work within `run`.
    """

    def __init__(self, made: Server[Any]) -> None:
        self._manager = StreamableHTTPSessionManager(
            made,
            json_response=True,
            stateless=True,
            # Access is decided in front of it, and the size of a body limited.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self.run = self._manager.run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = read_message(await Request(scope, receive).body())
        if isinstance(read, JSONRPCError):
            text = read.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(text, 400, media_type="application/json")(scope, receive, send)
            return
        body = json.dumps(read).encode()
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        # Without `Accept` a client takes anything.
        own = [each for each in scope["headers"] if each[0] != b"content-length"]
        accepts = [] if any(name == b"accept" for name, _ in own) else [(b"accept", b"*/*")]
        await self._manager.handle_request({**scope, "headers": own + accepts}, replay, send)


def run_stdio(calls: Calls, caller: Caller) -> None:
    """Serve one client over standard input and output until it closes its side and has its answers."""
    try:
        anyio.run(
            _serve_lines, server(calls, lambda _: caller, pool=Pool(STDIO_THREADS, timeout_s=STDIO_TIMEOUT_S))
        )
    except* (anyio.BrokenResourceError, BrokenPipeError):
        # The client went away in the middle of an answer, and waits for no other.
        Log("mcp").info("client.gone")


async def _serve_lines(made: Server[Any]) -> None:
    """Serve standard input and output, and send all answers before the end."""
    answers, sent = anyio.create_memory_object_stream[SessionMessage](0)
    #: The ids of requests without an answer, and what is set when one has it.
    waiting, answered = set[int | str | None](), [anyio.Event()]

    def end(request: int | str | None) -> None:
        waiting.discard(request)
        answered[0].set()
        answered[0] = anyio.Event()

    async def lines(unreadable: MemoryObjectSendStream[SessionMessage]) -> AsyncIterator[str]:
        async with unreadable:
            async for line in anyio.wrap_file(sys.stdin.buffer):
                if not line.strip():
                    continue
                body = read_message(line)
                if isinstance(body, JSONRPCError):
                    Log("mcp").warning("line.unreadable", kind=body.error.message)
                    await unreadable.send(SessionMessage(body))
                    continue
                if body.get("method") == "notifications/cancelled":
                    number = (body.get("params") or {}).get("requestId")
                    end(number if isinstance(number, int | str) else None)
                elif "method" in body and "id" in body:
                    waiting.add(body["id"])
                yield json.dumps(body)
            with anyio.move_on_after(DRAIN_TIMEOUT_S):
                while waiting:
                    await answered[0].wait()

    async def write(outgoing: MemoryObjectSendStream[SessionMessage]) -> None:
        async with outgoing, sent:
            async for message in sent:
                await outgoing.send(message)
                if isinstance(message.message, JSONRPCResponse | JSONRPCError):
                    end(message.message.id)

    source = cast("anyio.AsyncFile[str]", lines(answers.clone()))
    async with stdio_server(stdin=source) as (incoming, outgoing), anyio.create_task_group() as tasks:
        tasks.start_soon(write, outgoing)
        await made.run(incoming, answers, made.create_initialization_options())
