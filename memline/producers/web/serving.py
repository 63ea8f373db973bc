"""Serve API, MCP and dashboard at one address, as a part of a process; the only module that knows uvicorn."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress

import uvicorn

from memline.producers.api.app import Api
from memline.producers.api.auth import parse_address
from memline.producers.api.calls import Calls
from memline.producers.web.dashboard import Dashboard
from memline.shared.config.installation import Serve
from memline.shared.errors import ConfigError, IndexFault, MemlineError
from memline.shared.index import meta
from memline.shared.index.driver import reading_if_any
from memline.shared.index_writer import IndexWriter

#: Seconds between two tries to have an address that is taken.
RETRY_S = 5.0

#: Connections at a time; more are answered 503.
MAX_CONNECTIONS = 512

#: Seconds an idle connection is kept for its next request.
KEEP_ALIVE_S = 15

#: Seconds for requests that are running when the server has to stop: more than the eight that a question
#: waits for its vector, less than the ten that containers are given.
GRACE_S = 9

#: Bytes of the head of a request: its first line and its headers.
MAX_HEAD_BYTES = 16_384


def require_token(serve: Serve) -> None:
    """Raise ConfigError for an address that other machines can reach, when there is no token."""
    address = parse_address(serve.host)
    is_loopback = serve.host == "localhost" or (address is not None and address.is_loopback)
    if not (is_loopback or serve.token or any(serve.tokens.values())):
        raise ConfigError(
            f"other machines can reach {serve.host}, so a token is needed",
            hint="export MEMLINE_SERVE_TOKEN=$(openssl rand -hex 24), or serve.token in the configuration",
        )


def listen(serve: Serve) -> socket.socket:
    """Open the socket of the server. Raises MemlineError when the address cannot be used."""
    family = socket.AF_INET6 if ":" in serve.host else socket.AF_INET
    try:
        opened = socket.create_server((serve.host, serve.port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        hint = "set serve.host to an address of this machine, such as 127.0.0.1"
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            is_taken = error.errno == errno.EADDRINUSE and serve.port < 65_535
            hint = f"memline serve --port {serve.port + 1 if is_taken else 0}"
        words = f"cannot listen on {serve.host}:{serve.port}: {reason}"
        raise MemlineError(words, hint=hint, code="port_taken") from error
    # Connections inherit it. asyncio sets it only where the socket names its protocol, and this one does not;
    # without it the body of an answer waited 40 ms for the client to acknowledge its head.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


class Server:
    """The HTTP server in a thread: a part of a process (`producers.runs.parts`)."""

    def __init__(
        self, calls: Calls, wanted: Serve, *, on_note: Callable[[str], None], is_alone: bool = True
    ) -> None:
        """`calls` are closed at the end.

        With `is_alone` an address that is taken is an error; else a finding, and it is tried again.
        """
        self._calls = calls
        self._wanted = wanted
        self._on_note = on_note
        self._is_alone = is_alone
        self._server: uvicorn.Server | None = None
        #: Its address; with port 0 the one that was free.
        self.url = ""

    def __enter__(self) -> Server:
        """Raise ConfigError where a token is needed and there is none, MemlineError for a taken address."""
        require_token(self._wanted)
        self._stack = ExitStack()
        self._stack.enter_context(closing(self._calls))
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.should_exit = True
            self._thread.join()
        self._stack.close()

    def tick(self) -> None:
        if self._server is None:
            if time.monotonic() >= self._retry_at:
                self._begin()
        elif not self._thread.is_alive():
            raise MemlineError("the HTTP server ended by itself", hint="memline doctor")

    def _begin(self) -> None:
        self._retry_at = time.monotonic() + RETRY_S
        try:
            opened = self._stack.enter_context(listen(self._wanted))
        except MemlineError as error:
            if self._is_alone:
                raise
            error.hint = error.hint.replace("memline serve", "memline up --serve")
            self._show(error)
            return
        self._show(None)
        host, port, *_ = opened.getsockname()
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._on_note(f"memline: {self.url} (dashboard at /ui, MCP at /mcp)")
        config = uvicorn.Config(
            Api(self._calls, self._wanted, dashboard=Dashboard).app,
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
        )
        self._server = uvicorn.Server(config)
        # Signals belong to the command: uvicorn takes them in the main thread alone.
        run = self._server.run
        self._thread = threading.Thread(target=run, kwargs={"sockets": [opened]}, name="http", daemon=True)
        self._thread.start()

    def _show(self, fault: MemlineError | None) -> None:
        """Let `status` show why nothing is served, or that it is again."""
        entry = fault and {"error": fault.message, "action": fault.hint}
        for agent in self._calls.served:
            # Where the index cannot be used, that is what is shown.
            with suppress(IndexFault):
                with reading_if_any(agent.index_path) as reader:
                    is_known = reader is None or meta.get(reader, meta.SERVER_FAULT) == entry
                if not is_known:
                    with closing(IndexWriter.of(agent)) as writer, writer.transaction() as (connection, _):
                        meta.put(connection, meta.SERVER_FAULT, entry)
