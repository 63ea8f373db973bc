"""Ask a question through the queue, and carry its answer back.

<fleet>:asked:<box>    string: a caller waits and no worker has taken its question; gone with its time
<fleet>:reply:<box>    list: the answer, as JSON; gone after BOX_TTL_S when it is not read
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from typing import Any

from msgspec.structs import asdict

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.queue import broker, redis_broker, redis_client
from memline.shared.queue.heartbeat import is_served
from memline.shared.queue.messages import RunQuery
from memline.shared.search.request import SearchRequest
from memline.shared.sources.dates import day_of_time

#: Seconds in which a worker that is alive takes a question. Then who asks reads the index.
TAKEN_S = 0.5

#: Seconds a command waits for a query worker; after that it reads the index itself.
ANSWER_TIMEOUT_S = 10.0

#: Seconds an answer lies in its box in Redis when it is not read.
BOX_TTL_S = 30


class WorkerRefused(QueueError):
    """The question cannot be answered as it is: the worker says why."""


class Replies:
    """Carries answers from query workers to those who asked. Safe to use from several threads."""

    def __init__(self, address: QueueAddress) -> None:
        self._client = redis_client.client(address)

    def begin(self, box: str) -> bool:
        """Take a question; False when its caller has given up, or another worker has taken it."""
        return bool(self._client.delete(self._client.key(f"asked:{box}")))

    def put(self, box: str, answer: bytes) -> None:
        """Put an answer into a box."""
        name = self._client.key(f"reply:{box}")
        pipe = self._client.pipeline(transaction=False)
        pipe.rpush(name, answer)
        pipe.expire(name, BOX_TTL_S)
        self._client.execute(pipe)

    def close(self) -> None:
        self._client.close()


class QueryClient:
    """Asks the query workers of a fleet. Safe to use from several threads.

    A command pays for one connection; a long-lived process keeps it.
    """

    def __init__(self, address: QueueAddress) -> None:
        """Raise QueueError for an address that is not valid; nothing is connected yet."""
        self._client = redis_client.client(address, looks=True)
        self._broker = redis_broker.sender(self._client)

    def close(self) -> None:
        self._client.close()

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
        question = RunQuery(agent=agent, query=query, reply_to=box, options=options, index=index, face=face)
        asked = self._client.key(f"asked:{box}")
        if not is_served(self._client, "query"):
            return None
        self._client.set(asked, 1, px=max(1, int(timeout_s * 1000)))
        sent = self._broker.enqueue(broker.envelope(question)).options["redis_message_id"]
        raw = self._take(box, min(TAKEN_S, timeout_s))
        if raw is None and not self._client.delete(asked):
            raw = self._take(box, timeout_s - TAKEN_S)
        elif raw is None:
            # No worker has begun with it. One that has it in its memory will find no caller.
            self._client.lrem(self._client.key("query"), 1, sent)
            self._client.hdel(self._client.key("query.msgs"), sent)
        answer: dict[str, Any] | None = None if raw is None else json.loads(raw)
        if answer is None or answer.get("elsewhere"):
            return None
        if "error" in answer:
            raise WorkerRefused(answer["error"], hint=answer.get("action", ""))
        return answer

    def _take(self, box: str, timeout_s: float) -> bytes | None:
        """Wait for the answer; None when the time is over."""
        deadline = time.monotonic() + timeout_s
        # Shorter than any command may take, so that no connection of its own is needed for blocking.
        block_s = redis_client.LOOK_TIMEOUT_S / 4
        while (left_s := deadline - time.monotonic()) > 0:
            # BLPOP with 0 would wait for ever.
            wait_s = max(0.01, min(left_s, block_s))
            popped: Any = self._client.blpop([self._client.key(f"reply:{box}")], timeout=wait_s)
            if popped:
                answer: bytes = popped[1]
                return answer
        return None


def ask_fleet(
    address: QueueAddress, agent: str, request: SearchRequest, *, index: str = ""
) -> dict[str, Any] | None:
    """Ask a query worker once, for a command; None when none is alive, or it did not answer in time.

    `index` is the file name of the index that is meant. When Redis cannot be reached the caller reads the
    index itself: it is a local file. Raises WorkerRefused for a question that is wrong for every worker.
    """
    try:
        with closing(QueryClient(address)) as client:
            return client.ask(agent, request, timeout_s=ANSWER_TIMEOUT_S, index=index, face="cli")
    except WorkerRefused:
        raise
    except QueueError as error:
        Log("search").warning("queue.unavailable", error=error.message)
        return None
