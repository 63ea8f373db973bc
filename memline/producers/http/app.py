"""Serve the HTTP API: a route for each call that has one, MCP and the dashboard, over one warm index.

Calls run in a bounded pool of threads; the event loop only reads requests and writes answers. A token of one
agent sees and changes what is of that agent alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from memline.producers.actions.perform import Asker, perform
from memline.producers.agents.mcp import http_endpoint, server
from memline.producers.agents.pool import Pool
from memline.producers.agents.tools import Caller, MemoryTools
from memline.producers.calls.arguments import by_key, parse_texts, read, whole
from memline.producers.calls.memory_calls import AGENT_ID, CALLER, MEMORY_CALLS
from memline.producers.calls.rows import Call, Parameter
from memline.producers.calls.table import CALLS
from memline.producers.http.auth import (
    DASHBOARD,
    MAX_BODY_BYTES,
    Access,
    Authenticator,
    Guard,
    OriginCheck,
    access_of,
)
from memline.producers.http.request_log import RequestLog, methods_of, note
from memline.producers.http.responses import JsonResponse, error_response, response_to
from memline.shared.config.installation import Serve
from memline.shared.errors import BadRequest, MemlineError
from memline.shared.logs import Log
from memline.shared.version import own_version

#: Searches at a time, and the time limit of a request in seconds.
CALLS_AT_ONCE = 4
CALL_TIMEOUT_S = 30

#: Headers in which MCP clients say what other clients say as parameters.
AGENT_HEADER = "x-memline-agent"
SESSION_HEADER = "x-memline-session-key"

REINDEX = CALLS["reindex"]

#: Calls that the token of an agent opens, about that agent.
OF_AN_AGENT = frozenset(("search", "get", "status", "append"))

_HINTS = {
    404: "docs/http.md lists what there is",
    405: "see the header Allow",
    415: "send application/json",
}


class Pages(Protocol):
    """Serves the dashboard beside the API."""

    app: Starlette

    def access(self, cookies: Mapping[str, str], address: str) -> Access | None:
        """Return what a browser with these cookies may do; None when it has to log in."""

    async def missing(self, request: Request) -> Response:
        """Answer a browser that asked for an address that is not there."""


class Api:
    """The application of one server."""

    def __init__(
        self,
        tools: MemoryTools,
        serve: Serve,
        *,
        dashboard: Callable[[MemoryTools, Authenticator, Pool], Pages],
        default_agent: str,
    ) -> None:
        self._tools = tools
        self._pool = Pool(CALLS_AT_ONCE, timeout_s=CALL_TIMEOUT_S)
        authenticator = Authenticator(serve, default_agent=default_agent)
        self._pages = dashboard(tools, authenticator, self._pool)
        made = server(tools, _caller_of, pool=self._pool)
        mcp, self._serving_mcp = http_endpoint(made, max_body_bytes=MAX_BODY_BYTES)
        self.routes = (
            *(self._memory_route(call) for call in MEMORY_CALLS if call.http),
            Route("/reindex", self._reindex, methods=["POST"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/health", _health, methods=["GET"]),
            Route("/ready", self._ready, methods=["GET"]),
            Route("/mcp", mcp, methods=["POST"]),
            Route("/", _to_dashboard, methods=["GET"]),
            Route("/ui", _to_dashboard, methods=["GET"]),
            Mount(DASHBOARD.rstrip("/"), app=self._pages.app),
        )
        guard = Middleware(Guard, authenticator=authenticator, session_access=self._pages.access)
        self.app = Starlette(
            routes=self.routes,
            middleware=[
                Middleware(RequestLog, tally=tools.tally, routes=self.routes),
                Middleware(OriginCheck, serve=serve),
                guard,
            ],
            exception_handlers={MemlineError: _error, HTTPException: self._http_error, Exception: _crash},
            lifespan=self._lifespan,
        )
        # One address for each thing; a redirect would lose the body of a POST with some clients.
        self.app.router.redirect_slashes = False

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with self._serving_mcp:
            yield

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404 and "text/html" in request.headers.get("accept", ""):
            return await self._pages.missing(request)
        hint, headers = _HINTS.get(error.status_code, ""), error.headers
        if error.status_code == 405:
            # Not of the first route alone: an address may have one for each method.
            headers = {"allow": ", ".join(sorted(methods_of(request.scope, self.routes)))}
        # Starlette's own words have capitals, "Not Found"; ours are as they are meant.
        is_own = error.detail != HTTPStatus(error.status_code).phrase
        words = error.detail if is_own else error.detail.lower()
        return error_response(error.status_code, words, hint, headers=headers)

    def _memory_route(self, call: Call) -> Route:
        """Make the route of an agent's own call."""
        method = getattr(self._tools, call.name)

        async def answer(request: Request) -> Response:
            example = '{"query": "what to find"}'
            arguments = await read_arguments(request, call.takes_json, example=example)
            if call.name not in OF_AN_AGENT:
                access_of(request.scope).require_all()
            caller = _caller(request, arguments)
            return JsonResponse(await self._pool.run(partial(method, caller, arguments)))

        return Route(call.path, answer, methods=list(call.methods))

    async def _reindex(self, request: Request) -> Response:
        """Ask for a reindex of an agent, and answer with its job."""
        access = access_of(request.scope)
        access.require_all()
        parameters = (*REINDEX.takes_json, AGENT_ID)
        given = await read_arguments(request, parameters, example="{}", is_body_needed=False)
        arguments = read(parameters, given)
        agent = access.caller(arguments.get("agent", "")).agent
        note(request.scope, agent=agent[:80])
        agents = (self._tools.memory(agent).settings,)
        asker = Asker(settings=self._tools.settings, agents=agents, agent=agent, by=access.client)
        done = await self._pool.run(partial(perform, REINDEX, asker, **by_key(REINDEX, arguments)))
        return JsonResponse(done.value[0])

    async def _metrics(self, request: Request) -> Response:
        """Answer with the metrics of all agents, so only to a token that opens all."""
        access_of(request.scope).require_all()
        text = await self._pool.run(self._tools.metrics)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _ready(self, _request: Request) -> Response:
        """Say whether questions can be answered: every index there is can be opened."""
        try:
            await self._pool.run(self._tools.check)
        except MemlineError as error:
            # Asked without a token: which index, and what is wrong with it, is for the log.
            Log("http").warning("not.ready", error=str(error))
            return error_response(503, "an index cannot be read", "memline doctor, on the server")
        return JsonResponse({"status": "ready"})


async def _health(_request: Request) -> Response:
    return JsonResponse({"status": "ok", "version": own_version()})


async def _to_dashboard(_request: Request) -> Response:
    return RedirectResponse(DASHBOARD, 307, {"cache-control": "no-store"})


def _caller(request: Request, arguments: dict[str, Any]) -> Caller:
    """Return who asks; takes its parameters out of `arguments`. Raises BadRequest and AccessDenied."""
    names = {each.name for each in CALLER}
    of_caller = {name: arguments.pop(name) for name in names & arguments.keys()}
    return _caller_of(request, read(CALLER, of_caller))


def _caller_of(request: Request, named: Mapping[str, str] | None = None) -> Caller:
    """Return who asks; over MCP its address and its headers say so, never the model."""
    named = request.query_params if named is None else named
    caller = access_of(request.scope).caller(
        named.get("agent") or request.headers.get(AGENT_HEADER, ""),
        named.get("sessionKey") or request.headers.get(SESSION_HEADER, ""),
    )
    note(request.scope, agent=caller.agent[:80])
    return caller


async def read_arguments(
    request: Request, parameters: Iterable[Parameter], *, example: str, is_body_needed: bool = True
) -> dict[str, Any]:
    """Return the arguments of a request, not checked yet. Raises BadRequest and HTTPException.

    `example`: a body that is allowed, for the hint of an error. `is_body_needed`: whether an empty body of a
    POST is an error.
    """
    parameters = tuple(parameters)
    lists = {name for each in parameters if each.kind == "array" for name in (each.name, *each.aliases)}
    given: dict[str, list[str]] = {}
    for name, text in request.query_params.multi_items():
        if name in given and name not in lists:
            raise BadRequest(f"{name[:80]} is given twice", hint="give it once")
        given.setdefault(name, []).append(text)
    if request.method != "POST":
        texts = {name: each[0] for name, each in given.items() if name not in lists}
        return parse_texts(parameters, texts) | {name: given[name] for name in lists & given.keys()}
    if given:
        raise BadRequest("a POST takes its parameters in the body alone", hint="send them as JSON")
    if not is_body_needed and not await request.body():
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the body has to be JSON")
    hint = f"send an object, such as {example}"
    try:
        body = await request.json()
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is not valid JSON", hint=hint) from error
    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object", hint=hint)
    return {name: whole(each) for name, each in body.items()}


async def _error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, MemlineError)
    return response_to(error)


async def _crash(request: Request, error: Exception) -> Response:
    """Answer at the boundary to the client: it must not see the inside, and the log must."""
    Log("http").exception("request.failed", path=request.url.path, kind=type(error).__name__)
    return error_response(
        500, f"the request failed unexpectedly ({type(error).__name__})", "look at the log of the server"
    )
