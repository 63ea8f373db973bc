"""Log every request that the server answered, and count it: route, status and milliseconds, never its text.

The outermost layer, so that what the guard refuses is seen too. A handler tells in the scope which agent was
asked for (`note`).
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memline.producers.api.auth import ACCESS, Access, address_of
from memline.shared.figures.counters import REQUESTS, Tally
from memline.shared.logs import REQUEST, Log

#: Where `note` keeps what the line of a request says beside the rest.
_NOTED = "memline.noted"

#: The route of an address that leads nowhere: there are as many of them as clients can think of.
UNKNOWN = "other"


class RequestLog:
    """Middleware that writes a line and counts when the answer is complete."""

    def __init__(self, app: ASGIApp, *, tally: Tally, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._tally = tally
        self._routes = routes
        self._log = Log(REQUEST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 499

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # Routing changes the scope: where a mounted application begins, for one.
        route = route_of(dict(scope), self._routes)
        noted = scope[_NOTED] = {"agent": ""}
        try:
            await self._app(scope, receive, watched)
        finally:
            access: Access | None = scope.get(ACCESS)
            client = access.client if access else address_of(scope)
            took_ms = round((time.perf_counter() - began) * 1000, 1)
            self._tally.add(REQUESTS, route=route, status=str(status))
            self._log.info("request", route=route, status=status, ms=took_ms, client=client, **noted)


def route_of(scope: Scope, routes: Sequence[BaseRoute]) -> str:
    """Return the path of the route that a request leads to, with the names of its parts: `/jobs/{token}`."""
    for route in routes:
        match, child = route.matches(scope)
        if match is not Match.NONE and isinstance(route, Mount):
            below = route_of({**scope, **child}, route.routes)
            return below if below == UNKNOWN else route.path + below
        if match is not Match.NONE and isinstance(route, Route):
            return route.path
    return UNKNOWN


def note(scope: Mapping[str, Any], **fields: str) -> None:
    """Add what a handler knows to the line of its request."""
    scope.get(_NOTED, {}).update(fields)
