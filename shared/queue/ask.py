"""A question through the queue: sent to a query worker that is alive, waited for until a deadline."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from shared.clock import Clock, SystemClock
from shared.errors import QueueError
from shared.queue.messages import RunQuery
from shared.queue.replies import Replies
from shared.queue.send import send
from shared.search.results import SearchRequest

#: Seconds in which a worker that is alive takes a question: it waits inside Redis for one.
TAKEN_S = 0.5


class WorkerRefused(QueueError):
    """The question cannot be answered as it is: the worker says why."""


def ask_worker(
    replies: Replies,
    agent: str,
    request: SearchRequest,
    *,
    timeout_s: float,
    take_back: Callable[[str], bool] = lambda _: False,
    clock: Clock | None = None,
) -> dict[str, Any] | None:
    """The answer of a query worker, as JSON; None when it did not come in time: a late one is dropped.

    `take_back` is called when no answer has come for a while, with the id of the message; it says whether
    nobody had taken it, and then nobody is waited for. None as well when the worker could not answer for a
    reason of its own.

    Raises WorkerRefused, and QueueError when the queue cannot be reached.
    """
    clock = clock or SystemClock()
    box = uuid.uuid4().hex
    replies.open(box)
    options = asdict(request)
    query = options.pop("query")
    deadline = clock.now() + timeout_s
    message_id = send(RunQuery(agent=agent, query=query, reply_to=box, deadline=deadline, options=options))
    answer = replies.take(box, min(TAKEN_S, timeout_s))
    if answer is None and not take_back(message_id):
        answer = replies.take(box, timeout_s - TAKEN_S)
    if answer is None:
        return None
    found: dict[str, Any] = json.loads(answer)
    if found.get("elsewhere"):
        return None
    if "error" in found:
        raise WorkerRefused(found["error"], hint=found.get("action", ""))
    return found
