"""Messages of a fleet as its broker leaves them in Redis, without a broker."""

import time
from typing import Any

import msgspec
import redis

from memline.shared.queue import message_list, messages, redis_client
from memline.shared.queue.message_list import DEAD, WAITING, Filter
from memline.shared.queue.messages import ChunkFiles, Wire


class StoredMessages:
    """A client of the fleet `memline:<name>`, and messages put on its queues."""

    def __init__(self, url: str, name: str = "t") -> None:
        self.url = f"{url}#{name}"
        self._fleet = f"memline:{name}"
        self.client: redis.Redis = redis_client.client(self.url)

    def put(
        self,
        state: str,
        queue: str,
        name: str,
        message: Wire | bytes,
        *,
        ago_s: float = 0,
        actor: str = "",
        **options: Any,
    ) -> None:
        ids, contents = message_list.KEYS[state]
        base, at_ms = f"{self._fleet}:{queue}", (time.time() - ago_s) * 1000
        content = message
        if not isinstance(message, bytes):
            fields = {
                "actor_name": actor or f"{queue}_it",
                "args": [messages.encode(message)],
                "options": options,
                "message_timestamp": int(at_ms),
            }
            content = msgspec.msgpack.encode(fields)
        if state == WAITING:
            self.client.rpush(base, name)
        else:
            self.client.zadd(f"{base}{ids}", {name: at_ms})
        self.client.hset(f"{base}{contents}", name, content)  # type: ignore[arg-type]

    def names(self, state: str = DEAD, **where: str) -> list[str]:
        return [each.id for each in message_list.page(self.url, Filter(state=state, **where)).messages]

    def stored(self, queue: str, name: str) -> dict[str, Any]:
        raw: Any = self.client.hget(f"{self._fleet}:{queue}.msgs", name)
        return dict(msgspec.msgpack.decode(raw))


def files(*paths: str, agent: str = "main") -> ChunkFiles:
    return ChunkFiles(agent=agent, source="memory", paths=paths)
