"""Queue `query`: answers searches from a warm index. Reads only."""

from __future__ import annotations

import json
from functools import partial

from memline.shared.errors import ConfigError, MemlineError
from memline.shared.findings.answerer import Answerer
from memline.shared.index.driver import reading
from memline.shared.queue.broker import actor
from memline.shared.queue.messages import RunQuery
from memline.shared.queue.replies import Replies
from memline.shared.search.request import SearchRequest
from memline.shared.search.staleness import DiskState, Staleness
from memline.shared.sync.freshness import is_fresh
from memline.shared.sync.plan import make_plan, read_index_state
from memline.workers.context import Context, current


@actor(RunQuery)
def run_query(message: RunQuery) -> None:
    """Answer one question into its reply box.

    Safe twice and late: it only reads, an answer after the deadline is not computed, and a box without a
    waiting caller takes nothing. Not retried: the caller has searched the index directly by then.
    """
    context = current()
    if context.clock.now() > message.deadline:
        return
    try:
        request = SearchRequest(query=message.query, **message.options)
        context.agent(message.agent, index=message.index)
        memory = context.keep(("memory", message.agent), lambda: _Memory(context, message.agent))
        answer = memory.ask(request)
    except (MemlineError, TypeError) as error:
        hint = error.hint if isinstance(error, MemlineError) else ""
        # Only a wrong question is wrong for every worker; the rest may be a problem of this process.
        answer = {"error": str(error), "action": hint, "elsewhere": not isinstance(error, ConfigError)}
    replies = context.keep("replies", lambda: Replies(context.settings.queue.address))
    replies.put(message.reply_to, json.dumps(answer).encode())


class _Memory:
    """Answers from the warm memory of an agent, and knows how its index compares to the files."""

    def __init__(self, context: Context, agent: str) -> None:
        self._settings = context.agent(agent)
        self._choice = context.choice(agent)
        self._search = Answerer(
            self._settings,
            choice=self._choice,
            long_lived=True,
            limits=context.limits,
            queue=context.settings.queue.address,
            clock=context.clock,
        )
        self._staleness = Staleness(
            self._look, is_fresh=partial(is_fresh, self._settings, clock=context.clock), background=True
        )

    def ask(self, request: SearchRequest) -> dict[str, object]:
        """Answer a question as JSON."""
        return self._search.ask(request, self._staleness.state()).to_json()

    def close(self) -> None:
        self._search.close()

    def _look(self) -> DiskState:
        with reading(self._settings.index_path) as reader:
            plan = make_plan(self._settings, self._choice, read_index_state(reader))
            return DiskState(files_behind=plan.changes.count)
