"""Queue `query`: answers searches from a warm index. Reads only."""

from __future__ import annotations

import json
from functools import partial

from msgspec.structs import replace

from memline.shared.errors import ConfigError, MemlineError
from memline.shared.figures.counters import tally_of
from memline.shared.findings.answerer import Answerer
from memline.shared.index.driver import reading
from memline.shared.index.hold import has_follower
from memline.shared.queue.broker import actor
from memline.shared.queue.feed import enqueue_files
from memline.shared.queue.messages import RunQuery
from memline.shared.queue.replies import Replies
from memline.shared.search.request import SearchRequest, search_request
from memline.shared.search.results import Answer
from memline.shared.sync.plan import Plan, make_plan, read_index_state
from memline.shared.sync.staleness import DiskState, Staleness
from memline.workers.context import Context, current

#: Seconds that a question waits for files that changed, of a fleet without a `watch`; the rest is `stale`.
CATCH_UP_S, CATCH_UP_EVERY_S = 1.5, 0.05

#: Files that it has read at a time.
MOST_FILES = 200


@actor(RunQuery)
def run_query(message: RunQuery) -> None:
    """Answer one question into its reply box.

    Safe twice and late: it only reads, an answer after the deadline is not computed, and a box without a
    waiting caller takes nothing. Not retried: the caller has searched the index directly by then.
    """
    context = current()
    replies = context.keep("replies", lambda: Replies(context.settings.queue))
    if not replies.begin(message.reply_to):
        return
    try:
        request = search_request(message.query, **message.options)
        context.agent(message.agent, index=message.index)
        memory = context.keep(("memory", message.agent), lambda: _Memory(context, message.agent))
        tally = context.keep("tally", partial(tally_of, context.settings.account_path))
        found = tally.search(message.agent, message.face, lambda: memory.ask(request))
        answer = found.to_json()
    except (MemlineError, TypeError) as error:
        hint = error.hint if isinstance(error, MemlineError) else ""
        # Only a wrong question is wrong for every worker; the rest may be a problem of this process.
        answer = {"error": str(error), "action": hint, "elsewhere": not isinstance(error, ConfigError)}
    replies.put(message.reply_to, json.dumps(answer).encode())


class _Memory:
    """Answers from the warm memory of an agent, and knows how its index compares to the files."""

    def __init__(self, context: Context, agent: str) -> None:
        self._settings = context.agent(agent)
        self._choice = context.choice(agent)
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

    def _plan(self) -> Plan:
        with reading(self._settings.index_path) as reader:
            return make_plan(self._settings, self._choice, read_index_state(reader))

    def _look(self) -> DiskState:
        """Look at the files; where no `watch` follows them, have those that changed read, for a moment."""
        clock = self._clock
        began_s = clock.monotonic()
        plan = self._plan()
        look_s = clock.monotonic() - began_s
        changed = plan.changes.to_read()
        if changed and self._settings.memory.sync.on_search and not has_follower(self._settings.index_path):
            name = self._settings.index_path.name
            enqueue_files(self._settings.agent, sorted(changed)[:MOST_FILES], index=name)
            until = clock.monotonic() + CATCH_UP_S
            while plan.changes.count and clock.monotonic() < until:
                clock.sleep(CATCH_UP_EVERY_S)
                plan = self._plan()
        removed = len(plan.changes.removed)
        return DiskState(
            files_behind=plan.changes.count, removed=removed, look_s=look_s, emptied=plan.emptied
        )
