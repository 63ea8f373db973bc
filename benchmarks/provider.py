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
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

from benchmarks.bench import unit_vectors
from benchmarks.children import ROOT, environment

_POOL = 1_024


@contextmanager
def serving() -> Iterator[str]:
    """The base URL of a server that runs while the block does."""
    command = [sys.executable, "-m", "benchmarks.provider"]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


def requests_of(base_url: str) -> int:
    """How many embedding requests the server has answered since the last time it was asked."""
    with urlopen(f"{base_url}/count") as answer:
        return int(answer.read())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    pool: tuple[str, ...] = ()
    answered = 0

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        count, type(self).answered = type(self).answered, 0
        self._answer(str(count).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rows = (
            f'{{"object":"embedding","index":{index},'
            f'"embedding":"{self.pool[zlib.crc32(text.encode()) % _POOL]}"}}'
            for index, text in enumerate(body["input"])
        )
        type(self).answered += 1
        self._answer(f'{{"object":"list","data":[{",".join(rows)}],"model":"bench"}}'.encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def main() -> None:
    _Handler.pool = tuple(base64.b64encode(vector).decode() for vector in unit_vectors(_POOL))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
