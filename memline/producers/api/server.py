"""Run the HTTP server: where it listens, when it refuses to start, and how it ends.

The only module that knows uvicorn.
"""

import errno
import ipaddress
import socket
from threading import Event, Thread

import uvicorn
from starlette.types import ASGIApp

from memline.shared.config.installation import Serve
from memline.shared.errors import ConfigError, MemlineError
from memline.shared.liveness import Liveness

#: Connections at a time; more are answered 503.
MAX_CONNECTIONS = 512

#: Seconds an idle connection is kept for its next request.
KEEP_ALIVE_S = 15

#: Seconds for requests that are running when the server has to stop: more than the eight that a question
#: waits for its vector, less than the ten that containers are given.
GRACE_S = 9

#: Seconds between two looks at whether the server has to end.
TICK_S = 0.25

#: Bytes of the head of a request: its first line and its headers.
MAX_HEAD_BYTES = 16_384


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
        raise MemlineError(text, hint=_hint(serve.port, error), code="port_taken") from error
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


def run(app: ASGIApp, opened: socket.socket, stop: Event, *, liveness: Liveness | None = None) -> None:
    """Serve until `stop` is set; end after the running requests."""
    signs, is_ready = liveness or Liveness(), False

    async def alive() -> None:
        nonlocal is_ready
        if not is_ready:
            is_ready = True
            signs.ready()
        signs.alive()

    config = uvicorn.Config(
        app,
        http="h11",
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
        # From the event loop, so that a supervisor hears whether it goes round.
        callback_notify=alive,
        timeout_notify=1,
    )
    server = uvicorn.Server(config)
    # Signals belong to the command: uvicorn takes them in the main thread alone.
    thread = Thread(target=server.run, kwargs={"sockets": [opened]}, name="http", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.wait(TICK_S):
        pass
    server.should_exit = True
    signs.stopping()
    thread.join()
