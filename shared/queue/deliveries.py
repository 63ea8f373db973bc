"""Which requests are still on their way: a lease whose message Redis has lost goes back to the rows at once.

A message stays in the hash of its queue until it is acknowledged, and a worker acknowledges after it has sent
its result. So a request that is not in the hash has either been answered, and the answer lies on the store
queue, or is lost. The queue is processed in order, so a second look after everything that lay on it tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.queue import server
from shared.queue.fleet import NAMESPACE


class Deliveries:
    """Compares leases with the messages in Redis, sweep by sweep. For the store thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = server.client(url)
        #: Token -> when it was first found missing (seconds since the epoch).
        self._missing: dict[str, float] = {}

    def store_depth(self) -> int:
        """Messages that wait for the store worker."""
        with server.translated(self._url):
            return int(self._client.llen(f"{NAMESPACE}:store"))

    def lost(self, leases: Sequence[str], *, asked: float, now: float) -> list[str]:
        """Those of `leases` (tokens) that are on no queue any more.

        `asked` is when the sweep was put on the store queue: an answer that was there when its request was
        first found missing lies before a sweep that was sent after that, and has been processed by now.
        """
        if not leases:
            self._missing = {}
            return []
        with server.translated(self._url):
            pipe = self._client.pipeline(transaction=False)
            for token in leases:
                pipe.hexists(f"{NAMESPACE}:embed.msgs", token)
            there: Any = pipe.execute()
        missing = [token for token, is_there in zip(leases, there, strict=True) if not is_there]
        lost = [token for token in missing if self._missing.get(token, now) < asked]
        self._missing = {token: self._missing.get(token, now) for token in missing if token not in lost}
        return lost
