"""Serve the HTTP API: a route for each call, MCP and the dashboard, over one warm index.

Calls run in a bounded pool of threads; the event loop only reads requests and writes answers. The token of an
agent opens that agent alone.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from memline.producers.api.arguments import check, whole
from memline.producers.api.auth import DASHBOARD, Authenticator, Guard, access_of
from memline.producers.api.calls import Caller, Calls, Pool
from memline.producers.api.mcp import HttpEndpoint, server
from memline.producers.api.responses import JsonResponse, error_response, response_to
from memline.producers.reports.metrics import page
from memline.producers.reports.state import StateReader
from memline.shared.config.installation import Serve
from memline.shared.errors import BadRequest, MemlineError
from memline.shared.logs import Log
from memline.shared.packages import own_version

#: Searches at a time, and the time limit of a request in seconds.
CALLS_AT_ONCE = 4
CALL_TIMEOUT_S = 30

#: The methods of each call.
ROUTES = {
    "search": ("GET", "POST"),
    "get": ("GET", "POST"),
    "status": ("GET",),
    "context": ("GET",),
    "append": ("POST",),
    "reindex": ("POST",),
}

#: Calls that the token of an agent opens, about that agent.
OF_AN_AGENT = frozenset(("search", "get", "status", "append"))


class Api:
    """The application of one server."""

    def __init__(
        self,
        calls: Calls,
        serve: Serve,
        *,
        dashboard: Callable[[Calls, Authenticator, Pool], ASGIApp],
    ) -> None:
        """`dashboard` makes the application of the pages, which does its own login."""
        self._calls = calls
        self._pool = Pool(CALLS_AT_ONCE, timeout_s=CALL_TIMEOUT_S)
        authenticator = Authenticator(serve)
        self._mcp = HttpEndpoint(server(calls, self._mcp_caller, pool=self._pool))
        self._state = StateReader(calls.settings, calls.served)
        routes = [
            *(Route(f"/{name}", self._answer(name), methods=list(how)) for name, how in ROUTES.items()),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/health", _health, methods=["GET"]),
            Route("/ready", self._ready, methods=["GET"]),
            Route("/mcp", self._mcp, methods=["POST"]),
            Route("/", _to_dashboard, methods=["GET"]),
            Route("/ui", _to_dashboard, methods=["GET"]),
        ]
        pages = dashboard(calls, authenticator, self._pool)
        self.app = Starlette(
            routes=[*routes, Mount(DASHBOARD.rstrip("/"), app=pages)],
            middleware=[Middleware(Guard, serve=serve, authenticator=authenticator)],
            exception_handlers={
                MemlineError: _error,
                HTTPException: _http_error,
                ClientDisconnect: _gone,
                Exception: _crash,
            },
            lifespan=self._lifespan,
        )
        # One address for each thing; a redirect would lose the body of a POST with some clients.
        self.app.router.redirect_slashes = False

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with self._mcp.run():
            yield

    def _answer(self, name: str) -> Callable[[Request], Any]:
        """Make the endpoint of a call."""
        call, function = getattr(self._calls, name), getattr(Calls, name)

        async def answer(request: Request) -> Response:
            if name not in OF_AN_AGENT:
                access_of(request.scope).require_all()
            arguments = await _arguments(request)
            caller = self._caller(request, arguments.pop("agent", ""), arguments.pop("sessionKey", ""))
            checked = check(function, arguments)
            return JsonResponse(await self._pool.run(partial(call, caller, **checked)))

        return answer

    def _caller(self, request: Request, agent: object, session_key: object) -> Caller:
        """Return who asks: the token and the arguments say so. Raises AccessDenied."""
        return access_of(request.scope).caller(
            whole(str(agent or "")), whole(str(session_key or "")), default_agent=self._calls.default_agent
        )

    def _mcp_caller(self, request: Request) -> Caller:
        """Return who asks over MCP: its address says so, not the model. Raises AccessDenied."""
        query = request.query_params
        return self._caller(request, query.get("agent"), query.get("sessionKey"))

    async def _metrics(self, request: Request) -> Response:
        """Answer with the metrics of all agents, so only to a token that opens all."""
        access_of(request.scope).require_all()
        text = await self._pool.run(partial(page, self._state))
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _ready(self, _request: Request) -> Response:
        """Say whether questions can be answered: every index there is can be opened."""
        try:
            await self._pool.run(self._calls.check)
        except MemlineError as error:
            # Asked without a token: which index, and what is wrong with it, is for the log.
            Log("http").warning("not.ready", error=str(error))
            return error_response(503, "an index cannot be read", "memline doctor, on the server")
        return JsonResponse({"status": "ready"})


async def _health(_request: Request) -> Response:
    return JsonResponse({"status": "ok", "version": own_version()})


async def _to_dashboard(_request: Request) -> Response:
    return RedirectResponse(DASHBOARD, 307, {"cache-control": "no-store"})


async def _arguments(request: Request) -> dict[str, Any]:
    """Return the arguments of a request, not checked yet. Raises BadRequest and HTTPException."""
    query = request.query_params
    if request.method != "POST":
        lists = {name: query.getlist(name) for name in query}
        return {name: texts[0] if len(texts) == 1 else texts for name, texts in lists.items()}
    if query:
        raise BadRequest("a POST takes its parameters in the body alone", hint="send them as JSON")
    content = await request.body()
    if not content and request.url.path == "/reindex":
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body has to be JSON, and its type application/json")
    hint = 'send an object, such as {"query": "what to find"}'
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is not valid JSON", hint=hint) from error
    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object", hint=hint)
    return body


async def _error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, MemlineError)
    return response_to(error)


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = "docs/agents.md lists the addresses, their methods and what they take"
    return error_response(error.status_code, error.detail, hint, headers=error.headers)


async def _gone(_request: Request, _error: Exception) -> Response:
    """Answer nobody: the client is gone, and half a request is not acted upon."""
    return error_response(400, "incomplete request body", "send it again")


async def _crash(request: Request, error: Exception) -> Response:
    """Answer at the boundary to the client: it must not see the inside, and the log must."""
    Log("http").exception("request.failed", path=request.url.path, kind=type(error).__name__)
    return error_response(
        500, f"the request failed unexpectedly ({type(error).__name__})", "look at the log of the server"
    )
