"""Queue `query`: answers searches from a warm index. Reads only."""

from __future__ import annotations

import json

from msgspec.structs import replace

from memline.shared.errors import ConfigError, MemlineError
from memline.shared.findings.answerer import Answerer
from memline.shared.index.driver import reading
from memline.shared.index.hold import has_follower
from memline.shared.queue.broker import actor
from memline.shared.queue.feed import enqueue_files
from memline.shared.queue.messages import RunQuery
from memline.shared.queue.replies import Replies
from memline.shared.search.request import SearchRequest, search_request
from memline.shared.search.results import Answer
from memline.shared.sync.plan import make_plan
from memline.shared.sync.staleness import DiskState, Staleness
from memline.workers.context import Context, current

#: Files that changed which a question has read, in a fleet without a `watch`.
MOST_FILES = 200

#: Seconds between two times that it does so: a file is read soon, and asked for at once by many.
READ_EVERY_S = 1.0


@actor(RunQuery)
def run_query(message: RunQuery) -> None:
    """Answer one question into its reply box.

    Safe twice and late: it only reads, an answer after the deadline is not computed, and one that is not read
    is soon gone. Not retried: the caller has searched the index directly by then.
    """
    context = current()
    replies = context.keep("replies", lambda: Replies(context.settings.queue))
    if context.clock.now() > message.until:
        return
    try:
        request = search_request(message.query, **message.options)
        context.agent(message.agent, index=message.index)
        memory = context.keep(("memory", message.agent), lambda: _Memory(context, message.agent))
        answer = memory.ask(request).to_json()
    except (MemlineError, TypeError) as error:
        hint = error.hint if isinstance(error, MemlineError) else ""
        # Only a wrong question is wrong for every worker; the rest may be a problem of this process.
        answer = {"error": str(error), "action": hint, "elsewhere": not isinstance(error, ConfigError)}
    replies.put(message.reply_to, json.dumps(answer).encode())


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
        self._read_at = 0.0

    def ask(self, request: SearchRequest) -> Answer:
        """Answer a question."""
        answer = self._search.ask(request, self._staleness.state())
        return replace(answer, workspace=str(self._settings.workspace))

    def close(self) -> None:
        self._search.close()

    def _look(self) -> DiskState:
        """Look at the files.

        Where no `watch` follows them, those that changed are read for the next question.
        """
        settings, began_s = self._settings, self._clock.monotonic()
        with reading(settings.index_path) as reader:
            plan = make_plan(settings, self._choice, reader)
        changed = sorted(plan.changes.to_read())
        may_read = settings.memory.sync.on_search and not has_follower(settings.index_path)
        if changed and may_read and began_s >= self._read_at:
            self._read_at = began_s + READ_EVERY_S
            enqueue_files(settings.agent, changed[:MOST_FILES], index=settings.index_path.name)
        return DiskState(
            files_behind=plan.changes.count,
            removed=len(plan.changes.removed),
            look_s=self._clock.monotonic() - began_s,
            emptied=plan.emptied,
        )
