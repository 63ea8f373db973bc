"""Ask a question through the queue and carry its answer back; cancel what lies on a queue."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec

from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.queue import messages, redis_client
from memline.shared.queue.heartbeat import serving_key
from memline.shared.queue.redis_client import key, translated
from memline.shared.search.request import SearchRequest
from memline.shared.sources.dates import day_of_time
from memline.shared.values import asdict

if TYPE_CHECKING:
    from redis import Redis

#: Seconds in which a worker that is alive takes a question: it waits inside Redis for one. Then who asks
#: reads the index.
TAKEN_S = 0.5

#: Seconds a command waits for a query worker; after that it reads the index itself.
ANSWER_TIMEOUT_S = 10.0

#: Seconds an answer lies in its box in Redis when it is not read.
BOX_TTL_S = 30


class Replies:
    """Carries answers (JSON text) from query workers to those who asked: a list in Redis a question.

    Its time to live is short, so that a late answer leaves nothing. Safe to use from several threads.
    """

    def __init__(self, url: str, *, looks: bool = False) -> None:
        """`looks`: for one who asks, and goes on without Redis; see `redis_client.client`."""
        self.url = url
        # Shorter than any command may take, so that no connection of its own is needed for blocking.
        self._block_s = (redis_client.LOOK_TIMEOUT_S if looks else redis_client.SOCKET_TIMEOUT_S) / 4
        # Of the older protocol, which needs no greeting: a command asks once.
        self.client = redis_client.client(url, protocol=2, looks=looks)

    def put(self, box: str, answer: bytes) -> None:
        """Put an answer into a box."""
        name = self._key(box)
        with translated(self.url):
            pipe = self.client.pipeline(transaction=False)
            pipe.rpush(name, answer)
            pipe.expire(name, BOX_TTL_S)
            pipe.execute()

    def is_awaited(self, box: str) -> bool:
        """Tell whether the caller still waits: by a key that leaves by itself, so that no clock matters."""
        with translated(self.url):
            return bool(self.client.exists(self.asked_key(box)))

    def asked_key(self, box: str) -> str:
        """Name the key that is there while a caller waits for a box."""
        return key(self.client, f"asked:{box}")

    def take(self, box: str, timeout_s: float) -> bytes | None:
        """Wait for the answer; None when the time is over."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = deadline - time.monotonic()
            # BLPOP with 0 would wait for ever.
            wait_s = max(0.01, min(left_s, self._block_s))
            with translated(self.url):
                popped: Any = self.client.blpop([self._key(box)], timeout=wait_s)
            if popped:
                answer: bytes = popped[1]
                return answer
            if wait_s >= left_s:
                return None

    def close(self) -> None:
        self.client.close()

    def _key(self, box: str) -> str:
        return key(self.client, f"reply:{box}")


class WorkerRefused(QueueError):
    """The question cannot be answered as it is: the worker says why."""


class QueryClient:
    """Asks the query workers of a fleet; a context manager. Safe to use from several threads.

    A command pays for one connection and a long-lived process keeps it. It speaks to Redis without dramatiq
    and without scripts, which cost a command 25 ms of imports and three more connections.
    """

    def __init__(self, url: str) -> None:
        """Raise QueueError for an address that is not valid; nothing is connected yet."""
        self._url = url
        self._replies = Replies(url, looks=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._replies.close()

    def ask(
        self, agent: str, request: SearchRequest, *, timeout_s: float, index: str = "", face: str = "queue"
    ) -> dict[str, Any] | None:
        """Send a question to a query worker and wait for its answer, as JSON.

        None when no worker is alive, or none has taken the question for a while, or the answer did not come
        in time, or the worker could not answer for a reason of its own. Raises WorkerRefused, and QueueError
        when the queue cannot be reached.
        """
        box = os.urandom(16).hex()
        options = asdict(request)
        query = options.pop("query")
        # "Yesterday" is that of who asks.
        options["today"] = request.today or day_of_time(time.time()).isoformat()
        message = messages.RunQuery(
            agent=agent,
            query=query,
            reply_to=box,
            options=options,
            index=index,
            face=face,
        )
        is_served = self._enqueue(box, message, timeout_s)
        taken_s = min(TAKEN_S, timeout_s) if is_served else 0.0
        raw = self._replies.take(box, taken_s) if taken_s else None
        if raw is None and not self._take_back(box):
            raw = self._replies.take(box, timeout_s - taken_s)
        answer: dict[str, Any] | None = None if raw is None else json.loads(raw)
        if answer is None or answer.get("elsewhere"):
            return None
        if "error" in answer:
            raise WorkerRefused(answer["error"], hint=answer.get("action", ""))
        return answer

    def _enqueue(self, message_id: str, message: messages.RunQuery, timeout_s: float) -> bool:
        """Put a question on its queue, and tell whether a worker is alive.

        One round trip for both: each costs a millisecond.
        """
        client = self._replies.client
        content = {
            "queue_name": "query",
            "actor_name": "run_query",
            "args": (message,),
            "kwargs": {},
            "options": {
                "redis_message_id": message_id,
            },
            "message_id": message_id,
            "message_timestamp": int(time.time() * 1000),
        }
        base = key(client, "query")
        pipe = client.pipeline(transaction=True)
        pipe.set(self._replies.asked_key(message_id), 1, px=max(1, int(timeout_s * 1000)))
        pipe.hset(f"{base}.msgs", message_id, msgspec.msgpack.encode(content))
        pipe.rpush(base, message_id)
        pipe.exists(serving_key(client, "query"))
        with translated(self._url):
            return bool(pipe.execute()[-1])

    def _take_back(self, message_id: str) -> bool:
        """Take a question off its queue; False when a worker has taken it."""
        with translated(self._url):
            return cancel(self._replies.client, "query", message_id)


def ask_fleet(url: str, agent: str, request: SearchRequest, *, index: str = "") -> dict[str, Any] | None:
    """Ask a query worker once, for a command; None when none is alive, or it did not answer in time.

    `index` is the file name of the index that is meant. When Redis cannot be reached the caller reads the
    index itself: it is a local file. Raises WorkerRefused for a question that is wrong for every worker.
    """
    try:
        with QueryClient(url) as client:
            return client.ask(agent, request, timeout_s=ANSWER_TIMEOUT_S, index=index, face="cli")
    except WorkerRefused:
        raise
    except QueueError as error:
        Log("search").warning("queue.unavailable", error=error.message)
        return None


def cancel(client: Redis, queue: str, message_id: str) -> bool:
    """Take a message off its queue; False when a worker was quicker, or it is not there."""
    base = key(client, queue)
    # The process that takes the id off the list owns the message.
    is_ours = bool(client.lrem(base, 1, message_id))
    if is_ours:
        client.hdel(f"{base}.msgs", message_id)
    return is_ours
