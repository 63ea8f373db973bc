"""What a request has to pass before anything is done for it.

Host and Origin first: a web page that a browser shows must not reach a server on loopback, neither by its
own name turned to 127.0.0.1 (DNS rebinding) nor across origins. Then the token, the limits, and the body,
which is read here as a whole within its size and time. The scope then says what the request may do.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producers.http.access import Access, Doorkeeper
from producers.http.limits import PerMinute
from producers.http.replies import refusal, too_many
from producers.http.server import is_loopback
from shared.config.faces import Serve

#: Where `Access` is found in the scope of a request.
ACCESS = "memline.access"

#: Answered without a token: they tell nothing but that the server is there.
OPEN_PATHS = frozenset({"/health", "/ready", "/openapi.json", "/"})

#: Seconds a client has to send a body.
BODY_TIMEOUT_S = 10.0

#: Bytes above the limit that are read and thrown away: who is cut off while sending may not see the answer.
_DRAIN_BYTES = 1_048_576

#: Wrong tokens that an address may send in a minute.
MAX_WRONG_TOKENS = 20

_WRONG = "wrong tokens from this address"

#: A name or an address, and maybe a port; nothing that another reader could take for a part of a URL.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d*)?", re.ASCII)

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Middleware in front of the application."""

    def __init__(self, app: ASGIApp, *, serve: Serve, doorkeeper: Doorkeeper) -> None:
        self._app = app
        self._serve = serve
        self._doorkeeper = doorkeeper
        self._hosts = _known_hosts(serve)
        self._any_address = serve.host in ("0.0.0.0", "::", "")
        self._requests = PerMinute(serve.requests_per_minute)
        self._wrong_tokens = PerMinute(MAX_WRONG_TOKENS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._check_origin(headers)
        if refused is None and scope["method"] == "OPTIONS" and "origin" in headers:
            refused = _preflight()
        if refused is None:
            refused = self._check_access(scope, headers)
        if refused is None:
            received = await self._read(headers, receive)
            if isinstance(received, Response):
                refused = received
            else:
                receive = received
        if origin := self._allowed_origin(headers):
            send = _with_origin(send, origin)
        await (refused or self._app)(scope, receive, send)

    def _check_origin(self, headers: Headers) -> Response | None:
        if not self._is_known_host(headers.getlist("host")):
            return refusal(
                421, "this server does not answer to that Host", "add the name to serve.allowedHosts"
            )
        origin = ",".join(headers.getlist("origin"))
        host = headers["host"].lower()
        is_own = origin.lower() in (f"http://{host}", f"https://{host}")
        is_foreign = bool(origin) and not is_own and not self._allowed_origin(headers)
        # Without an Origin a browser says this much: a picture or a form of another page asks.
        is_foreign = is_foreign or (
            not origin and headers.get("sec-fetch-site") in ("cross-site", "same-site")
        )
        if is_foreign:
            return refusal(403, "web pages of another origin may not ask", "add it to serve.allowedOrigins")
        return None

    def _is_known_host(self, given: Sequence[str]) -> bool:
        if len(given) != 1:
            return False
        match = _HOST.fullmatch(given[0])
        name = match[1].strip("[]").lower() if match else ""
        if name in self._hosts:
            return True
        # Served on all addresses and no name said: an address is no name that could be turned to us.
        return self._any_address and not self._serve.allowed_hosts and _is_address(name)

    def _allowed_origin(self, headers: Headers) -> str:
        origin = headers.get("origin", "")
        return origin if origin in self._serve.allowed_origins else ""

    def _check_access(self, scope: Scope, headers: Headers) -> Response | None:
        address = scope["client"][0] if scope.get("client") else "?"
        if scope["path"] in OPEN_PATHS:
            return None
        access = self._doorkeeper.access(headers, address)
        if access is None:
            return self._without_token(headers, address)
        # Behind a proxy all clients have one address: none of them may lock the others out.
        if not is_loopback(address) and (wait_s := self._wrong_tokens.wait_s(address)):
            return too_many(wait_s, _WRONG)
        if wait_s := self._requests.take(access.client):
            return too_many(wait_s, f"requests: {self._serve.requests_per_minute} in a minute are allowed")
        scope[ACCESS] = access
        return None

    def _without_token(self, headers: Headers, address: str) -> Response:
        is_given = "authorization" in headers
        if is_given and (wait_s := self._wrong_tokens.take(address)):
            return too_many(wait_s, _WRONG)
        return refusal(
            401,
            "the token is not known" if is_given else "a token is needed",
            "send the header Authorization: Bearer TOKEN (serve.token or serve.tokens in the configuration)",
            headers={"www-authenticate": "Bearer"},
        )

    async def _read(self, headers: Headers, receive: Receive) -> Receive | Response:
        """The body as something to receive again; else the refusal."""
        limit = self._serve.max_body_bytes
        too_large = refusal(413, f"the request is larger than {limit} bytes", "ask shorter", headers=_CLOSE)
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared[:20]) > limit + _DRAIN_BYTES:
            return too_large
        body = bytearray()
        size = 0
        with anyio.move_on_after(BODY_TIMEOUT_S) as waiting:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    # Gone before all was said: half a request is not acted upon.
                    return refusal(400, "the request ends in the middle", "send it again", headers=_CLOSE)
                block = message.get("body", b"")
                size += len(block)
                if size <= limit:
                    body += block
                elif size > limit + _DRAIN_BYTES:
                    return too_large
                if not message.get("more_body", False):
                    break
        if waiting.cancelled_caught:
            return refusal(
                408, f"the request did not come within {BODY_TIMEOUT_S:g} s", "send it again", headers=_CLOSE
            )
        return _again(bytes(body), receive) if size <= limit else too_large


#: What is still on its way belongs to no request.
_CLOSE = {"connection": "close"}


def access_of(scope: Scope) -> Access:
    """What the request may do; only of requests that passed the guard."""
    access = scope[ACCESS]
    assert isinstance(access, Access)
    return access


def _known_hosts(serve: Serve) -> frozenset[str]:
    names = {name.lower() for name in (*_LOOPBACK, serve.host, *serve.allowed_hosts)}
    if serve.host in ("0.0.0.0", "::", ""):
        names.add(socket.gethostname().lower())
    return frozenset(names - {""})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _again(body: bytes, receive: Receive) -> Receive:
    waiting = [body]

    async def received() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return received


#: Headers that a page may send: those of the API, and those of MCP.
_PAGE_HEADERS = "authorization, content-type, mcp-protocol-version, mcp-method, mcp-name, mcp-session-id"


def _preflight() -> Response:
    """The answer to a browser that asks whether a page of an allowed origin may ask."""
    return Response(
        status_code=204,
        headers={
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": _PAGE_HEADERS,
            "access-control-max-age": "600",
        },
    )


def _with_origin(send: Send, origin: str) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message.get("headers", ()),
                (b"access-control-allow-origin", origin.encode("latin-1", "replace")),
                (b"vary", b"origin"),
            ]
        await send(message)

    return sent
