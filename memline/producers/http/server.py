"""Run the HTTP server: where it listens, when it refuses to start, and how it ends.

The only module that knows uvicorn.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from memline.producers.http.responses import error_response
from memline.shared.config.installation import Serve
from memline.shared.errors import ConfigError, MemlineError
from memline.shared.liveness import Liveness
from memline.shared.packages import install_command

#: Connections at a time; more are answered 503.
MAX_CONNECTIONS = 512

#: Seconds a client has for the head of a request, from its first byte or from connecting.
HEAD_TIMEOUT_S = 10.0

#: Seconds an idle connection is kept for its next request.
KEEP_ALIVE_S = 15

#: Seconds for requests that are running when the server has to stop: more than the eight that a question
#: waits for its vector, less than the ten that containers are given.
GRACE_S = 9

#: Seconds between two looks at whether the server has to end.
_TICK_S = 0.25

#: Bytes of the head of a request: its first line and its headers.
MAX_HEAD_BYTES = 16_384

#: A target that is a whole URL, without its query: what a client sends that takes the server for a proxy.
_URL = re.compile(rb"https?://([^/]*)(/.*)?", re.IGNORECASE)


def require_token(serve: Serve) -> None:
    """Raise ConfigError for an address that other machines can reach, when there is no token."""
    if not is_loopback(serve.host) and not serve.token and not serve.tokens:
        raise ConfigError(
            f"other machines can reach {serve.host}, so a token is needed",
            hint="export MEMLINE_SERVE_TOKEN=$(openssl rand -hex 24), or serve.token in the configuration",
        )


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach the address."""
    address = parse_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read a numeric address; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def listen(serve: Serve) -> socket.socket:
    """Open the socket of the server. Raises MemlineError when the address cannot be used."""
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
            serve.host, serve.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(MAX_CONNECTIONS)
        except BaseException:
            opened.close()
            raise
    except OSError as error:
        text = f"cannot listen on {serve.host}:{serve.port}: {error.strerror or error}"
        raise MemlineError(text, hint=_hint(serve.port, error)) from error
    return opened


def _hint(port: int, error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "set serve.host to an address of this machine, such as 127.0.0.1"
    if error.errno == errno.EADDRINUSE and port < 65_535:
        return f"memline serve --port {port + 1}"
    return "memline serve --port 0   (takes one that is free)"


def url_of(opened: socket.socket) -> str:
    """Return the address of the server; with port 0 the one that was free."""
    host, port, *_ = opened.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(
    app: ASGIApp,
    opened: socket.socket,
    stop: threading.Event,
    *,
    liveness: Liveness | None = None,
) -> None:
    """Serve until `stop` is set; end after the running requests.

    Raises MemlineError for a uvicorn whose inside is not the one that the time limit of heads builds on.
    """
    if not all(hasattr(H11Protocol, name) for name in _UVICORN_INTERNALS):
        raise MemlineError(
            f"uvicorn {uvicorn.__version__} is not supported", hint=install_command("uvicorn>=0.40,<0.55")
        )
    config = uvicorn.Config(
        _HeadLimit(app),
        http=_HeadTimeoutProtocol,
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        access_log=False,
        # The client is the peer of the connection: it must not claim another address for the limits.
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    _Server(config, stop, liveness or Liveness()).run(sockets=[opened])


#: What `_HeadTimeoutProtocol` overrides; uvicorn promises none of it.
_UVICORN_INTERNALS = ("connection_made", "data_received", "connection_lost", "send_400_response")


def head_too_large() -> Response:
    """Make the answer to a request whose head is larger than it may be."""
    return error_response(
        431,
        f"the head of the request is larger than {MAX_HEAD_BYTES} bytes",
        "send fewer or shorter headers, and a long question by POST",
        headers={"connection": "close"},
    )


class _HeadLimit:
    """Refuses a head above the limit: h11 knows its size only while it is incomplete. Reads whole URLs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _head_bytes(scope) > MAX_HEAD_BYTES:
            await head_too_large()(scope, receive, send)
        else:
            await self._app(_in_origin_form(scope), receive, send)


def _in_origin_form(scope: Scope) -> Scope:
    """Take the target of a request that is a whole URL apart (RFC 9112, 3.2.2): its host is the Host."""
    url = _URL.fullmatch(scope["raw_path"]) if scope["type"] == "http" else None
    if not url:
        return scope
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    path = url[2] or b"/"
    own = {"path": unquote(path.decode("ascii")), "raw_path": path, "headers": [*headers, (b"host", url[1])]}
    return {**scope, **own}


def _head_bytes(scope: Scope) -> int:
    """Count the bytes of a head as they were sent, up to the spaces that a client may put around values."""
    first = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"]) + len("  HTTP/1.1\r\n")
    return first + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"]) + 2


class _Server(uvicorn.Server):
    """End when the event is set, and tell a supervisor; signals belong to the command."""

    def __init__(self, config: uvicorn.Config, stop: threading.Event, liveness: Liveness) -> None:
        super().__init__(config)
        self._stop = stop
        self._liveness = liveness

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._liveness.ready()

    async def main_loop(self) -> None:
        # uvicorn's own looks ten times a second, 0.4 % of a core while no request comes.
        counter = 0
        while not await self.on_tick(counter):
            # At 0 the date of answers is set anew.
            counter = (counter + 5) % 10
            await asyncio.sleep(_TICK_S)

    async def on_tick(self, counter: int) -> bool:
        self._liveness.alive()
        return self._stop.is_set() or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._stop.is_set():
            self._liveness.stopping()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _HeadTimeoutProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for the head of a request, which uvicorn does not have."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_head_timer()
        else:
            self._stop_head_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not a request; uvicorn has one answer for all, also for a head that has no end."""
        if len(self.conn.trailing_data[0]) <= MAX_HEAD_BYTES:
            super().send_400_response(msg)
            return
        answer = head_too_large()
        lines = [
            b"HTTP/1.1 431 Request Header Fields Too Large",
            *map(b": ".join, answer.raw_headers),
            b"",
            b"",
        ]
        self.transport.write(b"\r\n".join(lines) + bytes(answer.body))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
