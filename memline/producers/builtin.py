"""Answer questions from the builtin index."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import Any

from memline.producers.backends import Asked, IndexReport, LinkCheck
from memline.producers.read_note import check_links, read_note
from memline.shared.clock import Clock
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice
from memline.shared.embedders.choice import choose as embedder_of
from memline.shared.errors import IndexMissing, MemlineError, PathNotAllowed
from memline.shared.finding import Finding
from memline.shared.findings.answerer import Answerer
from memline.shared.index import driver
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Answer
from memline.shared.sources.excerpt import Excerpt
from memline.shared.sync.plan import make_plan
from memline.shared.sync.staleness import DiskState, Staleness


class Builtin:
    """Searches, reads and follows the notes of one agent. Safe to use from several threads."""

    def __init__(self, settings: Settings, agent: AgentSettings, *, long_lived: bool, clock: Clock) -> None:
        self._settings = settings
        self._agent = agent
        self._long_lived = long_lived
        self._clock = clock
        self._lock = threading.Lock()
        self._parts: tuple[Answerer, Staleness] | None = None

    def ask(self, request: SearchRequest, *, met: tuple[Finding, ...] = ()) -> Answer:
        """Answer a request; `met`: what the caller met before.

        Raises IndexFaults, and ConfigError for a bad date.
        """
        search, staleness = self._searching()
        try:
            return search.ask(request, staleness.state(), met=met)
        except IndexMissing:
            # Moved away since the last look; another look builds it again from the files.
            return search.ask(request, staleness.look_now(), met=met)

    def get(self, asked: Asked, *, private: bool) -> Excerpt:
        try:
            return read_note(self._agent, asked, private=private, clock=self._clock)
        except PathNotAllowed:
            # A note that was saved since the last look is known by its name once it is in the index.
            if self._agent.memory.enabled and "/" not in asked.path:
                with suppress(MemlineError):
                    self._searching()[1].state()
            return read_note(self._agent, asked, private=private, clock=self._clock)

    def lint(self, *, private: bool) -> LinkCheck:
        self._searching()[1].look_now()
        return check_links(self._agent, private=private)

    def sync(self, *, force: bool, re_embed: bool, accept_removals: bool, **hooks: Any) -> IndexReport:
        from memline.producers.runs.index_run import bring_up_to_date

        return bring_up_to_date(
            self._settings,
            self._agent,
            force=force,
            re_embed=re_embed,
            accept_removals=accept_removals,
            clock=self._clock,
            **hooks,
        )

    def status(self, *, deep: bool, met: tuple[Finding, ...] = ()) -> dict[str, Any]:
        from memline.producers.reports.status import report

        return report(self._settings, self._agent, deep=deep, met=met)

    def met(self) -> tuple[Finding, ...]:
        """Return what keeps this backend from answering by itself."""
        return ()

    def look(self) -> None:
        """Take in a note that this process has just changed. Raises IndexFaults."""
        if self._long_lived or self._parts is not None:
            self._searching()[1].look_now()

    def close(self) -> None:
        with self._lock:
            if self._parts is not None:
                self._parts[0].close()
            self._parts = None

    def _searching(self) -> tuple[Answerer, Staleness]:
        """Open what searches need, once."""
        with self._lock:
            if self._parts is None:
                self._parts = self._open()
            return self._parts

    def _open(self) -> tuple[Answerer, Staleness]:
        agent, queue = self._agent, self._settings.queue
        choice, limits = embedder_of(agent), None
        if queue:
            from memline.shared.queue.redis_limits import fleet_limits

            limits = fleet_limits(queue, agent, choice)
        # Beside a fleet a long-lived process leaves the index to the store worker: `watch` enqueues every
        # change. A command writes: it runs only when no query worker is alive.
        may_write = not (self._long_lived and queue)
        look = partial(catch_up, agent, choice, clock=self._clock, may_write=may_write)
        search = Answerer(
            agent,
            choice=choice,
            long_lived=self._long_lived,
            limits=limits,
            queue=queue,
            clock=self._clock,
        )
        return search, Staleness(look)


def catch_up(settings: AgentSettings, choice: Choice, *, clock: Clock, may_write: bool = True) -> DiskState:
    """Look at the files, and with `sync.onSearch` store those that changed; return how many are still behind.

    Their vectors are left to `index` and `up`. `may_write`: False leaves the index to its own writer,
    whatever the settings say. Raises IndexFaults.
    """
    began = time.thread_time()
    with driver.reading_if_any(settings.index_path) as reader:
        plan = make_plan(settings, choice, reader)
    look_s = time.thread_time() - began
    behind = plan.changes.count
    if may_write and settings.memory.sync.on_search and plan.changes.to_read():
        # What writes takes 20 ms to import, which a search without changes does not pay.
        from memline.producers.store_changes import store_changes

        behind -= store_changes(settings, plan, clock)
    removed = min(len(plan.changes.removed), behind)
    return DiskState(files_behind=behind, removed=removed, look_s=look_s, emptied=plan.emptied)
