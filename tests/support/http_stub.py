"""An HTTP server of a test: on a port of its own, in a thread, running while the `with` block does."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, format, *args):
        """Say nothing."""


class HttpStub:
    """A server, or one of a handler; those of protocols are built upon it."""

    #: What follows the port in `url`.
    base_path = ""

    def __init__(self, served):
        if isinstance(served, type):
            served = ThreadingHTTPServer(("127.0.0.1", 0), served)
        self._http = served
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self):
        """The base URL for clients."""
        return f"http://127.0.0.1:{self._http.server_port}{self.base_path}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
