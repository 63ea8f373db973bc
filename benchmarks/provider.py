"""An embedding server at zero latency, in a process of its own: it answers from a pool of vectors.

    python -m benchmarks.provider     prints its base URL and serves until it is ended

Vectors are not made for a text but picked by its checksum, so that the server costs next to nothing and what
is measured is the client.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

from benchmarks.bench import unit_vectors
from benchmarks.children import ROOT, environment

_POOL = 1_024


@contextmanager
def running(module: str, *args: float | str) -> Iterator[str]:
    """Run a module that calls `serve` as a process while the block does; gives its base URL."""
    command = [sys.executable, "-m", module, *map(str, args)]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


def serving() -> AbstractContextManager[str]:
    """The base URL of this server, which runs while the block does."""
    return running("benchmarks.provider")


class Handler(BaseHTTPRequestHandler):
    """Keeps its connections, and sends an answer in one piece."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""

    def texts(self) -> list[str]:
        """The texts of a request for embeddings."""
        found: list[str] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        return found

    def answer(self, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def serve(handler: type[Handler]) -> None:
    """Serve on a free port of loopback until the process is ended; the first line printed is the base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


def requests_of(base_url: str) -> int:
    """How many embedding requests the server has answered since the last time it was asked."""
    with urlopen(f"{base_url}/count") as answer:
        return int(answer.read())


class _Pool(Handler):
    pool: tuple[str, ...] = ()
    answered = 0

    def do_GET(self) -> None:
        count, type(self).answered = type(self).answered, 0
        self.answer(str(count).encode())

    def do_POST(self) -> None:
        rows = (
            f'{{"object":"embedding","index":{index},'
            f'"embedding":"{self.pool[zlib.crc32(text.encode()) % _POOL]}"}}'
            for index, text in enumerate(self.texts())
        )
        type(self).answered += 1
        self.answer(f'{{"object":"list","data":[{",".join(rows)}],"model":"bench"}}'.encode())


if __name__ == "__main__":
    _Pool.pool = tuple(base64.b64encode(vector).decode() for vector in unit_vectors(_POOL))
    serve(_Pool)
