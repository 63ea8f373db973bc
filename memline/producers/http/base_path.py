"""Serve below a path of a host that other programs share: `serve.basePath`, which a proxy passes on.

Inside the application no address has it: this takes it off what is asked, and puts it before redirects and
the paths of cookies. The templates put it into the links of pages.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BasePath:
    """Middleware outside of all others. An address without the path is answered too, as for a probe."""

    def __init__(self, app: ASGIApp, *, base: str) -> None:
        self._app = app
        self._base = base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._base:
            await self._app(scope, receive, send)
            return

        async def prefixed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message.get("headers", ())))
                if headers.get("location", "").startswith("/"):
                    headers["location"] = self._base + headers["location"]
                cookies = headers.getlist("set-cookie")
                del headers["set-cookie"]
                for cookie in cookies:
                    headers.append("set-cookie", cookie.replace("; Path=/", f"; Path={self._base}/"))
                message = {**message, "headers": headers.raw}
            await send(message)

        path = scope["path"]
        if f"{path}/".startswith(f"{self._base}/"):
            path = path[len(self._base) :] or "/"
        await self._app({**scope, "path": path}, receive, prefixed)
