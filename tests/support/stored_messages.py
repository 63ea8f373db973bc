"""Dead letters of a fleet as its broker leaves them in Redis, without a broker."""

import time

import msgspec

from memline.shared.config.installation import QueueAddress
from memline.shared.queue import redis_client
from memline.shared.queue.messages import ChunkFiles, Envelope


class StoredMessages:
    """A client of the fleet `memline:<name>`, and dead letters put on its queues."""

    def __init__(self, url, name="t"):
        self.url = QueueAddress(url, name)
        self._fleet = f"memline:{name}"
        self.client = redis_client.client(self.url)

    def put(
        self,
        queue,
        name,
        message,
        *,
        ago_s=0,
        actor="",
        error="",
        **options,
    ):
        base, at_ms = f"{self._fleet}:{queue}", (time.time() - ago_s) * 1000
        stored = Envelope(queue, actor or f"{queue}_it", [message], {}, {}, name, int(at_ms))
        content = msgspec.msgpack.encode(msgspec.structs.asdict(stored))
        self.client.zadd(f"{base}.XQ", {name: at_ms})
        self.client.hset(f"{base}.XQ.msgs", name, content)
        self.client.set(f"{self._fleet}:error:{name}", error)


def files(*paths, agent="main"):
    return ChunkFiles(agent=agent, paths=paths)
