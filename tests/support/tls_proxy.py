"""A TLS front of a server on this machine, with a certificate that only those trust who have its file."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

CERTIFICATE = Path(__file__).parents[1] / "fixtures/untrusted.pem"


class TlsProxy:
    """Passes on what it is sent to a port of this machine, until the end of its block."""

    def __init__(self, port):
        #: How often a client has connected, with a handshake that went well or not.
        self.connections = 0
        self._target = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATE)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(120)

    def _accept(self):
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(raw,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, raw):
        """Pass on both ways, in one thread: two must not use a TLS connection at once."""
        # ValueError: `select` of a socket that the end has closed.
        with suppress(OSError, ValueError), self._context.wrap_socket(raw, server_side=True) as client:
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open += [client, server]
            with server:
                while True:
                    ready = [client] if client.pending() else select.select([client, server], [], [])[0]
                    for source, target in ((client, server), (server, client)):
                        if source in ready:
                            data = source.recv(65_536)
                            if not data:
                                return
                            target.sendall(data)
