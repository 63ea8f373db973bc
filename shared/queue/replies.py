"""Ask a question through the queue, and carry its answer back: one reply box a question, read once."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict
from typing import Any

from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.cancel import cancel
from memline.shared.queue.messages import RunQuery
from memline.shared.queue.routes import send
from memline.shared.search.results import SearchRequest

#: Seconds in which a worker that is alive takes a question: it waits inside Redis for one.
TAKEN_S = 0.5

#: Seconds an answer lies in its box in Redis when it is not read.
BOX_TTL_S = 30

#: Seconds one wait for an answer may last.
MAX_WAIT_S = 60.0


class Replies:
    """Carries answers (JSON text) from query workers to those who asked: a list in Redis a question.

    Its time to live is short, so that a late answer leaves nothing.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = redis_client.client(url)
        #: A pool of its own, whose connections may be blocked for so long.
        self._blocking = redis_client.client(url, block_s=MAX_WAIT_S)

    def put(self, box: str, answer: bytes) -> None:
        """Put an answer into a box."""
        key = self._key(box)
        with redis_client.translated(self._url):
            pipe = self._client.pipeline(transaction=False)
            pipe.rpush(key, answer)
            pipe.expire(key, BOX_TTL_S)
            pipe.execute()

    def take(self, box: str, timeout_s: float) -> bytes | None:
        """Wait for the answer; None when the time is over."""
        # BLPOP with 0 would wait for ever.
        timeout_s = max(0.01, min(timeout_s, MAX_WAIT_S))
        with redis_client.translated(self._url):
            popped: Any = self._blocking.blpop([self._key(box)], timeout=timeout_s)
        return popped[1] if popped else None

    def cancel(self, message_id: str) -> bool:
        """Take a question off its queue; False when a worker has taken it."""
        with redis_client.translated(self._url):
            return cancel(self._client, "query", message_id)

    def close(self) -> None:
        self._client.close()
        self._blocking.close()

    def _key(self, box: str) -> str:
        return redis_client.key(self._client, f"reply:{box}")


class WorkerRefused(QueueError):
    """The question cannot be answered as it is: the worker says why."""


def ask_worker(
    replies: Replies,
    agent: str,
    request: SearchRequest,
    *,
    timeout_s: float,
) -> dict[str, Any] | None:
    """Send a question to a query worker and wait for its answer, as JSON.

    None when the answer did not come in time, or no worker has taken the question for a while, or the worker
    could not answer for a reason of its own. Raises WorkerRefused, and QueueError when the queue cannot be
    reached.
    """
    box = uuid.uuid4().hex
    options = asdict(request)
    query = options.pop("query")
    deadline = time.time() + timeout_s
    message_id = send(RunQuery(agent=agent, query=query, reply_to=box, deadline=deadline, options=options))
    raw = replies.take(box, min(TAKEN_S, timeout_s))
    if raw is None and not replies.cancel(message_id):
        raw = replies.take(box, timeout_s - TAKEN_S)
    if raw is None:
        return None
    answer: dict[str, Any] = json.loads(raw)
    if answer.get("elsewhere"):
        return None
    if "error" in answer:
        raise WorkerRefused(answer["error"], hint=answer.get("action", ""))
    return answer
