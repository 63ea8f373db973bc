"""Reply boxes in Redis: a list a question, with an end of its own so that a late answer leaves nothing."""

from __future__ import annotations

import redis

from shared.queue import server
from shared.queue.fleet import NAMESPACE

#: Seconds an answer lies in its box when nobody takes it.
BOX_TTL_S = 30


class RedisReplies:
    """Carries answers between processes; see `shared.queue.replies.Replies`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = server.client(url)

    def open(self, box: str) -> None:
        """Nothing to do: a list comes to be with its first element."""

    def put(self, box: str, answer: bytes) -> None:
        key = _key(box)
        with server.translated(self._url):
            pipe = self._client.pipeline(transaction=False)
            pipe.rpush(key, answer)
            pipe.expire(key, BOX_TTL_S)
            pipe.execute()

    def take(self, box: str, timeout_s: float) -> bytes | None:
        # BLPOP with 0 would wait for ever.
        waiting: redis.Redis = server.client(self._url, block_s=timeout_s)
        try:
            with server.translated(self._url):
                found = waiting.blpop([_key(box)], timeout=max(timeout_s, 0.01))
        finally:
            waiting.close()
        answer = found[1] if found else None
        return answer if isinstance(answer, bytes) else None


def _key(box: str) -> str:
    return f"{NAMESPACE}:reply:{box}"
