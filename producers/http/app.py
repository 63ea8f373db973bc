"""The HTTP API: one route for each call of `MemoryTools`, MCP beside them, all over one warm index.

Searches run in a bounded pool of threads; the event loop only reads requests and writes answers.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from producers.http.access import Doorkeeper
from producers.http.guard import Guard, access_of
from producers.http.openapi import describe
from producers.http.page import page
from producers.http.replies import Json, refusal, refusal_of
from producers.mcp import HttpEndpoint, server
from producers.memory_tools import Caller, MemoryTools
from producers.pool import Pool
from producers.version import own_version
from shared.config.faces import Serve
from shared.errors import BadRequest, MemlineError
from shared.logs import Log
from shared.search import parameters

#: Headers in which MCP clients say what other clients say as parameters.
AGENT_HEADER = "x-memline-agent"
SESSION_HEADER = "x-memline-session-key"

#: The text format of Prometheus.
_METRICS_TYPE = "text/plain; version=0.0.4"

Call = Callable[..., dict[str, Any]]


class Api:
    """The application of one server."""

    def __init__(self, tools: MemoryTools, serve: Serve, *, default_agent: str) -> None:
        self._tools = tools
        self._pool = Pool(serve.threads, timeout_s=serve.timeout_seconds)
        writes = any(tools.agent(agent).memory.append.enabled for agent in tools.agents)
        self._mcp = HttpEndpoint(
            server(tools, _caller_of, pool=self._pool, writes=writes),
            max_body_bytes=serve.max_body_bytes,
        )
        self.routes = (
            self._route("/search", tools.search, "GET", "POST"),
            self._route("/get", tools.get, "GET", "POST"),
            self._route("/status", tools.status, "GET"),
            self._route("/context", tools.context, "GET"),
            self._route("/append", tools.append, "POST"),
            Route("/overview", self._overview, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/health", _health, methods=["GET"]),
            Route("/ready", self._ready, methods=["GET"]),
            Route("/openapi.json", _openapi, methods=["GET"]),
            Route("/mcp", self._mcp, methods=["POST"]),
            Route("/", page, methods=["GET"]),
        )
        self.app = Starlette(
            routes=self.routes,
            middleware=[
                Middleware(Guard, serve=serve, doorkeeper=Doorkeeper(serve, default_agent=default_agent))
            ],
            exception_handlers={HTTPException: _http_error, Exception: _crash},
            lifespan=self._lifespan,
        )
        # One address for each thing; a redirect would lose the body of a POST with some clients.
        self.app.router.redirect_slashes = False

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with self._mcp.running():
            yield

    def _route(self, path: str, call: Call, *methods: str) -> Route:
        async def answer(request: Request) -> Response:
            try:
                given, is_text = await _given(request)
                caller = _caller(request, given)
                return Json(await self._pool.run(partial(call, caller, given, is_text=is_text)))
            except MemlineError as error:
                return refusal_of(error)

        return Route(path, answer, methods=list(methods))

    async def _overview(self, request: Request) -> Response:
        """The state of every agent that the token opens, and with the token for all also the queues."""
        access = access_of(request.scope)
        agents = (access.only,) if access.only else self._tools.agents
        try:
            overview = partial(self._tools.overview, agents, with_queues=not access.only)
            return Json(await self._pool.run(overview))
        except MemlineError as error:
            return refusal_of(error)

    async def _metrics(self, request: Request) -> Response:
        """What `memline metrics` serves; of all agents, so only for whom all are open."""
        if access_of(request.scope).only:
            return refusal(403, "metrics are of all agents", "use serve.token")
        try:
            return Response(await self._pool.run(self._tools.metrics), media_type=_METRICS_TYPE)
        except MemlineError as error:
            return refusal_of(error)

    async def _ready(self, _request: Request) -> Response:
        """Whether questions can be answered: every index there is can be opened."""
        try:
            await self._pool.run(self._tools.check)
        except MemlineError as error:
            # Asked without a token: which index, and what is wrong with it, is for the log.
            Log("http").warning("not.ready", error=str(error))
            return refusal(503, "an index cannot be read", "memline doctor, on the server")
        return Json({"status": "ready"})


async def _health(_request: Request) -> Response:
    """Whether the server is there."""
    return Json({"status": "ok", "version": own_version()})


async def _openapi(_request: Request) -> Response:
    return Json(describe(own_version()))


async def _given(request: Request) -> tuple[dict[str, Any], bool]:
    """The parameters of a request, and whether they are all texts. Raises BadRequest."""
    given: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name in given:
            raise BadRequest(f"{name[:80]} is given twice", hint="give it once")
        given[name] = text
    if request.method != "POST":
        return given, True
    if given:
        raise BadRequest("a POST takes its parameters in the body alone", hint="send them as JSON")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the body has to be JSON")
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is no JSON", hint='such as {"query": "what to find"}') from error
    if not isinstance(body, dict):
        raise BadRequest("the body is no JSON object", hint='such as {"query": "what to find"}')
    return body, False


def _caller(request: Request, given: dict[str, Any]) -> Caller:
    """Who asks; takes what says so out of `given`. Raises BadRequest and AccessDenied."""
    names = {one.name for one in parameters.CALLER}
    said: Mapping[str, Any] = {name: given.pop(name) for name in names & given.keys()}
    found = parameters.read(parameters.CALLER, said)
    return access_of(request.scope).caller(
        found.get("agent", request.headers.get(AGENT_HEADER, "")),
        found.get("sessionKey", request.headers.get(SESSION_HEADER, "")),
    )


def _caller_of(request: Any) -> Caller:
    """Who asks over MCP: its address and its headers say so, never the model."""
    assert isinstance(request, Request)
    return access_of(request.scope).caller(
        request.query_params.get("agent") or request.headers.get(AGENT_HEADER, ""),
        request.query_params.get("sessionKey") or request.headers.get(SESSION_HEADER, ""),
    )


_HINTS = {
    404: "GET /openapi.json lists what there is",
    405: "see the header Allow",
    415: "send application/json",
}


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = _HINTS.get(error.status_code, "")
    return refusal(error.status_code, error.detail.lower(), hint, headers=error.headers)


async def _crash(request: Request, error: Exception) -> Response:
    """The boundary to the client: it must not see the inside, and the log must."""
    Log("http").exception("request.failed", path=request.url.path, kind=type(error).__name__)
    return refusal(
        500, f"the request failed unexpectedly ({type(error).__name__})", "look at the log of the server"
    )
