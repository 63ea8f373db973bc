"""An embedding server with a latency, in a process of its own: how busy a fleet keeps its embed workers.

    python -m benchmarks.fleet_provider LATENCY_MS DIMS     prints its base URL and serves until it is ended

Its answers are made in advance, one for each number of rows: what a request costs here is its transport.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.children import ROOT, environment


@contextmanager
def serving(*, latency_ms: float, dims: int) -> Iterator[str]:
    """The base URL of a server that runs while the block does."""
    command = [sys.executable, "-m", "benchmarks.fleet_provider", str(latency_ms), str(dims)]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    latency_s = 0.0
    dims = 0

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""

    def do_POST(self) -> None:
        began = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = answer(len(body["input"]), self.dims)
        time.sleep(max(0.0, self.latency_s - (time.monotonic() - began)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()


@lru_cache(maxsize=512)
def answer(rows: int, dims: int) -> bytes:
    import numpy as np

    source = np.random.default_rng(rows)
    parts = []
    for index in range(rows):
        vector = source.standard_normal(dims).astype("<f4")
        unit = (vector / np.linalg.norm(vector)).astype("<f4")
        text = base64.b64encode(unit.tobytes()).decode()
        parts.append(f'{{"object":"embedding","index":{index},"embedding":"{text}"}}')
    return f'{{"object":"list","data":[{",".join(parts)}],"model":"bench"}}'.encode()


def main() -> None:
    _Handler.latency_s, _Handler.dims = float(sys.argv[1]) / 1000, int(sys.argv[2])
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
