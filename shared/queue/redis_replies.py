"""Reply boxes in Redis: a list a question, with an end of its own so that a late answer leaves nothing."""

from __future__ import annotations

from shared.queue import server
from shared.queue.fleet import NAMESPACE

#: Seconds an answer lies in its box when nobody takes it.
BOX_TTL_S = 30

#: Seconds one wait for an answer may last.
MAX_WAIT_S = 60.0


class RedisReplies:
    """Carries answers between processes; see `shared.queue.replies.Replies`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = server.client(url)
        #: A pool of its own, whose connections may be blocked for so long.
        self._waiting = server.client(url, block_s=MAX_WAIT_S)

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
        timeout_s = max(timeout_s, 0.01)
        with server.translated(self._url):
            found = self._waiting.blpop([_key(box)], timeout=min(timeout_s, MAX_WAIT_S))
        answer = found[1] if found else None
        return answer if isinstance(answer, bytes) else None


def _key(box: str) -> str:
    return f"{NAMESPACE}:reply:{box}"
