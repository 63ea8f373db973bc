"""Log every request that the server answered, and count it: route, status and milliseconds, never its text.

The outermost layer, so that what the guard refuses is seen too.
"""

import time
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memline.producers.api.auth import ACCESS, DASHBOARD, Access, address_of
from memline.shared.figures.counters import REQUESTS, Tally
from memline.shared.logs import REQUEST, Log

#: Where a handler says in the scope which agent was asked for.
AGENT = "memline.agent"


class RequestLog:
    """Middleware that writes a line and counts when the answer is complete."""

    def __init__(self, app: ASGIApp, *, tally: Tally, paths: Collection[str]) -> None:
        """`paths`: the addresses that are counted alone; clients can think of any number of others."""
        self._app = app
        self._tally = tally
        self._paths = paths
        self._log = Log(REQUEST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, path = time.perf_counter(), 499, scope["path"]

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        route = path if path in self._paths else DASHBOARD if path.startswith(DASHBOARD) else "other"
        try:
            await self._app(scope, receive, watched)
        finally:
            access: Access | None = scope.get(ACCESS)
            client, agent = access.client if access else address_of(scope), scope.get(AGENT, "")
            took_ms = round((time.perf_counter() - began) * 1000, 1)
            self._tally.add(REQUESTS, route=route, status=str(status))
            self._log.info("request", route=route, status=status, ms=took_ms, client=client, agent=agent)
