"""Queue `query`: answers searches from a warm index. Reads only."""

from __future__ import annotations

import json

from msgspec.structs import replace

from memline.shared.errors import MemlineError
from memline.shared.findings.answerer import Answerer
from memline.shared.logs import Log
from memline.shared.queue import redis_client, replies
from memline.shared.queue.broker import actor
from memline.shared.queue.messages import RunQuery
from memline.shared.search.request import search_request
from memline.shared.sync.plan import plan_of
from memline.shared.sync.staleness import DiskState
from memline.workers.context import Context, current


@actor(RunQuery)
def run_query(message: RunQuery) -> None:
    """Answer one question into its reply box.

    Safe twice and late: it only reads, an answer after the deadline is not computed, and one that is not read
    is soon gone. Not retried: the caller has searched the index directly by then.
    """
    context, answer = current(), None
    client = context.keep("replies", lambda: redis_client.client(context.settings.queue))
    if context.clock.now() > message.until:
        return
    try:
        request = search_request(message.query, **message.options)
        settings = context.agent(message.agent, index=message.index).with_workspace()
        memory = context.keep(("memory", message.agent), lambda: _answerer(context, message.agent))
        answer = replace(memory.ask(request), workspace=str(settings.workspace)).to_json()
    except (MemlineError, TypeError) as error:
        # Who asked reads the index itself, and meets what is wrong.
        Log("query").warning("question.not_answered", error=str(error))
    replies.put(client, message.reply_to, json.dumps(answer).encode())


def _answerer(context: Context, agent: str) -> Answerer:
    """Open the memory of an agent to answer many questions."""
    settings, choice = context.agent(agent), context.choices(agent)[0]
    return Answerer(
        settings,
        choice=choice,
        long_lived=True,
        look=lambda: DiskState.of(plan_of(settings, choice)),
        limits=context.limits,
        queue=context.settings.queue,
        clock=context.clock,
    )
