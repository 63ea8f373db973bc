"""Queue `query`: answers searches from a warm index. Reads only."""

from __future__ import annotations

import json

from msgspec.structs import replace

from memline.shared.errors import MemlineError
from memline.shared.findings.answerer import Answerer
from memline.shared.index.driver import reading
from memline.shared.logs import Log
from memline.shared.queue import redis_client, replies
from memline.shared.queue.broker import actor
from memline.shared.queue.messages import RunQuery
from memline.shared.search.request import SearchRequest, search_request
from memline.shared.search.results import Answer
from memline.shared.sync.plan import make_plan
from memline.shared.sync.staleness import DiskState, Staleness
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
        context.agent(message.agent, index=message.index)
        memory = context.keep(("memory", message.agent), lambda: _Memory(context, message.agent))
        answer = memory.ask(request).to_json()
    except (MemlineError, TypeError) as error:
        # Who asked reads the index itself, and meets what is wrong.
        Log("query").warning("question.not_answered", error=str(error))
    replies.put(client, message.reply_to, json.dumps(answer).encode())


class _Memory:
    """Answers from the warm memory of an agent, and knows how its index compares to the files."""

    def __init__(self, context: Context, agent: str) -> None:
        self._settings = context.agent(agent)
        self._choice = context.choices(agent)[0]
        self._clock = context.clock
        self._search = Answerer(
            self._settings,
            choice=self._choice,
            long_lived=True,
            limits=context.limits,
            queue=context.settings.queue,
            clock=context.clock,
        )
        self._staleness = Staleness(self._look)

    def ask(self, request: SearchRequest) -> Answer:
        """Answer a question."""
        answer = self._search.ask(request, self._staleness.state())
        return replace(answer, workspace=str(self._settings.workspace))

    def close(self) -> None:
        self._search.close()

    def _look(self) -> DiskState:
        """Look at the files."""
        began_s = self._clock.monotonic()
        with reading(self._settings.index_path) as reader:
            plan = make_plan(self._settings, self._choice, reader)
        return DiskState(
            files_behind=plan.changes.count,
            removed=len(plan.changes.removed),
            look_s=self._clock.monotonic() - began_s,
            emptied=plan.emptied,
        )
