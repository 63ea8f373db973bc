"""Ask a question through the queue, and carry its answer back.

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
from memline.shared.queue.fleet import live_workers
from memline.shared.queue.messages import RunQuery
from memline.shared.queue.redis_client import FleetClient
from memline.shared.search.request import SearchRequest

#: Seconds a command waits for a query worker; after that it reads the index itself. A worker that is alive
#: answers in milliseconds; one that was killed counts as alive for some seconds.
ANSWER_TIMEOUT_S = 2.0

#: Seconds an answer lies in its box in Redis when it is not read.
BOX_TTL_S = 30


def put(client: FleetClient, box: str, answer: bytes) -> None:
    """Put an answer into a box."""
    name = client.key(f"reply:{box}")
    pipe = client.pipeline(transaction=False)
    pipe.rpush(name, answer)
    pipe.expire(name, BOX_TTL_S)
    client.execute(pipe)


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
        self, agent: str, request: SearchRequest, *, timeout_s: float, index: str = ""
    ) -> dict[str, Any] | None:
        """Send a question to a query worker and wait for its answer, as JSON.

        None when no worker is alive, or the answer did not come in time, or the worker has none. Raises
        QueueError when the queue cannot be reached.
        """
        if not any("query" in worker.queues for worker in live_workers(self._client)):
            return None
        options, box, until = asdict(request), os.urandom(16).hex(), time.time() + timeout_s
        query = options.pop("query")
        question = RunQuery(agent=agent, query=query, reply_to=box, until=until, options=options, index=index)
        self._broker.enqueue(broker.envelope(question))
        popped: Any = None
        while popped is None and time.time() < until:
            # Shorter than any command may take, so that no connection of its own is needed for blocking.
            block_s = redis_client.LOOK_TIMEOUT_S / 4
            popped = self._client.blpop([self._client.key(f"reply:{box}")], timeout=block_s)
        answer: dict[str, Any] | None = json.loads(popped[1]) if popped else None
        return answer


def ask_fleet(
    address: QueueAddress, agent: str, request: SearchRequest, *, index: str = ""
) -> dict[str, Any] | None:
    """Ask a query worker once, for a command; None when none is alive, or it did not answer in time.

    `index` is the file name of the index that is meant. When Redis cannot be reached the caller reads the
    index itself: it is a local file.
    """
    try:
        with closing(QueryClient(address)) as client:
            return client.ask(agent, request, timeout_s=ANSWER_TIMEOUT_S, index=index)
    except QueueError as error:
        Log("search").warning("queue.unavailable", error=error.message)
        return None
