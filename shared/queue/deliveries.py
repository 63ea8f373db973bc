"""Which requests are still on their way, so that each is paid for once.

A lease whose message Redis has lost goes back to the rows; a message whose lease is over is withdrawn.

A message stays in the hash of its queue until it is acknowledged, and a worker acknowledges after it has sent
its result. So a request that is not in the hash has either been answered, and the answer lies on the store
queue, or is lost. The queue is processed in order, so a second look after everything that lay on it tells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import dramatiq
from dramatiq.middleware import Middleware, SkipMessage

from shared.errors import QueueError
from shared.queue import server
from shared.queue.fleet import DEAD_ERRORS, NAMESPACE, FleetBroker

_REQUESTS = f"{NAMESPACE}:embed"


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

    def is_any_chunking(self) -> bool:
        """Whether files wait for a chunk worker, or one of them has some."""
        try:
            with server.translated(self._url):
                return bool(self._client.hlen(f"{NAMESPACE}:chunk.msgs"))
        except QueueError:
            # Whoever sends next meets the same trouble and says so.
            return False

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
                pipe.hexists(f"{_REQUESTS}.msgs", token)
            there: Any = pipe.execute()
        missing = [token for token, is_there in zip(leases, there, strict=True) if not is_there]
        lost = [token for token in missing if self._missing.get(token, now) < asked]
        self._missing = {token: self._missing.get(token, now) for token in missing if token not in lost}
        return lost

    def died(self, leases: Collection[str]) -> dict[str, str]:
        """Those of `leases` whose request, or the answer to it, became a dead letter, and why.

        Sent again at once they would die again: an embed worker of an older release refuses every request.
        """
        found: dict[str, str] = {}
        with server.translated(self._url):
            for base in (_REQUESTS, f"{NAMESPACE}:store") if leases else ():
                ids: Any = self._client.zrange(f"{base}.XQ", 0, -1)
                dead = {raw_id.decode(): raw_id for raw_id in ids}
                for letter_id, raw_id in dead.items():
                    # Answers are named after their lease as well (`shared.queue.send`).
                    token = letter_id.partition(".")[0]
                    if token in leases:
                        error: Any = self._client.hget(DEAD_ERRORS, raw_id)
                        found[token] = (error or b"").decode(errors="replace")
        return found

    def withdraw(self, tokens: Collection[str]) -> None:
        """These leases are over: a worker that still has their message leaves it alone."""
        if tokens:
            with server.translated(self._url):
                pipe = self._client.pipeline(transaction=False)
                for token in tokens:
                    pipe.lrem(_REQUESTS, 1, token)
                    pipe.hdel(f"{_REQUESTS}.msgs", token)
                pipe.execute()


class OnlyOurs(Middleware):
    """Skips a request that is not this worker's any more, before it is paid for.

    A worker that was suspended, or whose Redis came back empty, still has messages in its memory that have
    been sent again to others.
    """

    def before_process_message(self, broker: dramatiq.Broker, message: dramatiq.broker.MessageProxy) -> None:
        if message.queue_name != "embed":
            return
        assert isinstance(broker, FleetBroker)
        message_id = message.options["redis_message_id"]

        def look() -> Any:
            pipe = broker.client.pipeline(transaction=False)
            pipe.hexists(f"{_REQUESTS}.msgs", message_id)
            pipe.sismember(broker.taken("embed"), message_id)
            return pipe.execute()

        if not all(broker.patience(look)):
            raise SkipMessage("the request has been sent again meanwhile")
