"""An embedding server with limits, in a process of its own: it refuses what is above them in any minute.

    python -m benchmarks.limited_provider REQUESTS TOKENS     prints its base URL and serves until it is ended

A request counts when its last byte has come, refused ones too. `GET /log` tells when each came, its tokens
(a quarter of its characters), and whether it was refused.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.fleet_provider import answer
from benchmarks.provider import Handler, running, serve

WINDOW_S = 60.0
_DIMS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request, as the server saw it."""

    #: Seconds since the first one.
    at: float
    tokens: int
    refused: bool


def serving(*, requests: int, tokens: int) -> AbstractContextManager[str]:
    """The base URL of a server that runs while the block does."""
    return running("benchmarks.limited_provider", requests, tokens)


def arrivals(url: str) -> list[Arrival]:
    """All requests so far, in order."""
    with urllib.request.urlopen(f"{url}/log", timeout=30) as response:
        return [Arrival(at=at, tokens=tokens, refused=refused) for at, tokens, refused in json.load(response)]


class _Handler(Handler):
    max_requests = max_tokens = 0
    lock = threading.Lock()
    #: When each request came (monotonic seconds), its tokens, whether it was refused.
    log: list[tuple[float, int, bool]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        with self.lock:
            first = self.log[0][0] if self.log else 0.0
            found = [(round(at - first, 4), tokens, refused) for at, tokens, refused in self.log]
        self.answer(json.dumps(found).encode())

    def do_POST(self) -> None:
        texts = self.texts()
        wait_s = self._count(sum(map(len, texts)) // 4)
        if wait_s:
            error = {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}
            headers = {"Retry-After": str(int(wait_s) + 1)}
            self.answer(json.dumps(error).encode(), status=429, headers=headers)
        else:
            self.answer(answer(len(texts), _DIMS))

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


if __name__ == "__main__":
    _Handler.max_requests, _Handler.max_tokens = int(sys.argv[1]), int(sys.argv[2])
    serve(_Handler)
