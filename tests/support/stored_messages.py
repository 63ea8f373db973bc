"""Dead letters of a fleet as its broker leaves them in Redis, without a broker."""

import time
from typing import Any

import msgspec
import redis

from memline.shared.config.installation import QueueAddress
from memline.shared.queue import redis_client
from memline.shared.queue.messages import ChunkFiles, Envelope, Wire


class StoredMessages:
    """A client of the fleet `memline:<name>`, and dead letters put on its queues."""

    def __init__(self, url: str, name: str = "t") -> None:
        self.url = QueueAddress(url, name)
        self._fleet = f"memline:{name}"
        self.client: redis.Redis = redis_client.client(self.url)

    def put(
        self,
        queue: str,
        name: str,
        message: Wire,
        *,
        ago_s: float = 0,
        actor: str = "",
        error: str = "",
        **options: Any,
    ) -> None:
        base, at_ms = f"{self._fleet}:{queue}", (time.time() - ago_s) * 1000
        stored = Envelope(queue, actor or f"{queue}_it", [message], {}, {}, name, int(at_ms))
        content = msgspec.msgpack.encode(msgspec.structs.asdict(stored))
        self.client.zadd(f"{base}.XQ", {name: at_ms})
        self.client.hset(f"{base}.XQ.msgs", name, content)
        self.client.set(f"{self._fleet}:error:{name}", error)


def files(*paths: str, agent: str = "main") -> ChunkFiles:
    return ChunkFiles(agent=agent, source="memory", paths=paths)
