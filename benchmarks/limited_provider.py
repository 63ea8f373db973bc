"""An embedding server with limits, in a process of its own: it refuses what is above them in any minute.

    python -m benchmarks.limited_provider REQUESTS TOKENS     prints its base URL and serves until it is ended

A request counts when its last byte has come, refused ones too. `GET /log` tells when each came, its tokens
(a quarter of its characters), and whether it was refused.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.children import ROOT, environment
from benchmarks.fleet_provider import answer

WINDOW_S = 60.0
_DIMS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request, as the server saw it."""

    #: Seconds since the first one.
    at: float
    tokens: int
    refused: bool


@contextmanager
def serving(*, requests: int, tokens: int) -> Iterator[str]:
    """The base URL of a server that runs while the block does."""
    command = [sys.executable, "-m", "benchmarks.limited_provider", str(requests), str(tokens)]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


def arrivals(url: str) -> list[Arrival]:
    """All requests so far, in order."""
    with urllib.request.urlopen(f"{url}/log", timeout=30) as response:
        return [Arrival(at=at, tokens=tokens, refused=refused) for at, tokens, refused in json.load(response)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    max_requests = max_tokens = 0
    lock = threading.Lock()
    #: When each request came (monotonic seconds), its tokens, whether it was refused.
    log: list[tuple[float, int, bool]] = []  # noqa: RUF012

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        with self.lock:
            first = self.log[0][0] if self.log else 0.0
            found = [(round(at - first, 4), tokens, refused) for at, tokens, refused in self.log]
        self._send(200, json.dumps(found).encode())

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        wait_s = self._count(sum(map(len, texts)) // 4)
        if wait_s:
            error = {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}
            self._send(429, json.dumps(error).encode(), {"Retry-After": str(int(wait_s) + 1)})
        else:
            self._send(200, answer(len(texts), _DIMS))

    def _count(self, tokens: int) -> float:
        """Note a request; the seconds until it would be within the limits, 0 when it is."""
        with self.lock:
            now = time.monotonic()
            recent = [(at, used) for at, used, _ in self.log if at > now - WINDOW_S]
            is_above = (
                len(recent) >= self.max_requests or sum(used for _, used in recent) + tokens > self.max_tokens
            )
            self.log.append((now, tokens, is_above))
            return recent[0][0] + WINDOW_S - now if is_above and recent else float(is_above)

    def _send(self, status: int, body: bytes, headers: dict[str, Any] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def main() -> None:
    _Handler.max_requests, _Handler.max_tokens = int(sys.argv[1]), int(sys.argv[2])
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
