"""A search through the queue of a fleet, when one of its query workers is alive."""

from __future__ import annotations

from functools import partial
from typing import Any

from shared.errors import QueueError
from shared.logs import Log
from shared.queue import server
from shared.queue.ask import WorkerRefused, ask_worker
from shared.queue.broker import on_redis
from shared.queue.fleet import FleetBroker
from shared.queue.presence import is_served
from shared.queue.redis_replies import RedisReplies
from shared.search.results import SearchRequest

#: Seconds a command waits for a query worker; after that it reads the index itself.
ANSWER_TIMEOUT_S = 10.0


def ask_fleet(url: str, agent: str, request: SearchRequest) -> dict[str, Any] | None:
    """The answer of a query worker; None when there is none alive, or it did not answer in time.

    A Redis that cannot be asked is no reason not to answer: the index is a file beside us. Raises
    WorkerRefused for a question that is wrong whoever answers it.
    """
    try:
        with server.closing_client(url) as client, server.translated(url):
            if not is_served(client, "query"):
                return None
            broker = on_redis(url, is_checked=False)
            assert isinstance(broker, FleetBroker)
            return ask_worker(
                RedisReplies(url),
                agent,
                request,
                timeout_s=ANSWER_TIMEOUT_S,
                take_back=partial(broker.take_back, "query"),
            )
    except WorkerRefused:
        raise
    except QueueError as error:
        Log("search").warning("queue.unavailable", error=error.message)
        return None
