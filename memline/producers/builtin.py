"""Answer questions from the builtin index, and choose what answers: it, or another program beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import AccessDenied, BadRequest, IndexFault, IndexMissing, PathNotAllowed
from memline.shared.finding import Finding, Trouble
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Answer
from memline.shared.search.staleness import Staleness
from memline.shared.sources.front_matter import named
from memline.shared.sources.paths import TRANSCRIPT_PREFIX, MemoryPaths

if TYPE_CHECKING:
    from memline.producers.backends import Backend, IndexReport
    from memline.shared.findings.answerer import Answerer
    from memline.shared.sources.excerpt import Excerpt, Part


def choose(settings: Settings, agent: AgentSettings, *, long_lived: bool, clock: Clock) -> Backend:
    """Make the backend that the configuration names."""
    builtin = Builtin(settings, agent, long_lived=long_lived, clock=clock)
    if agent.backend != "qmd":
        return builtin
    # 20 ms, which only those pay who have it.
    from memline.producers.bridges.qmd.backend import QmdBackend

    return QmdBackend(agent, builtin, long_lived=long_lived, clock=clock)


class Builtin:
    """The backend of Memline's own index."""

    def __init__(self, settings: Settings, agent: AgentSettings, *, long_lived: bool, clock: Clock) -> None:
        self._settings = settings
        self._agent = agent
        self._long_lived = long_lived
        self._clock = clock
        self._lock = threading.Lock()
        self._parts: tuple[Answerer, Staleness] | None = None

    def ask(self, request: SearchRequest, *, troubles: tuple[Trouble, ...] = ()) -> Answer:
        search, staleness = self._searching()
        try:
            return search.ask(request, staleness.state(), troubles=troubles)
        except IndexMissing:
            # Moved away since the last look; another look builds it again from the files.
            return search.ask(request, staleness.look_now(), troubles=troubles)

    def get(self, path: str, part: Part, *, private: bool) -> Excerpt:
        from memline.shared.sources.excerpt import read_excerpt

        name = path.strip().removeprefix("./")
        if name.startswith(TRANSCRIPT_PREFIX) and not name.lower().endswith(".md"):
            if not private:
                raise AccessDenied(
                    "past conversations are private: they are not read in a group, nor by a subagent",
                    hint="ask in a direct chat; memory.privateInGroups opens them to all",
                )
            if (said := self._said(name, part)) is not None:
                return said
        read = partial(
            read_excerpt, MemoryPaths.of(self._agent), part=part.widened(), private=private, clock=self._clock
        )
        try:
            excerpt = read(path)
        except PathNotAllowed:
            if (note := self._note_named(path)) is None:
                raise
            return read(note)
        note = self._note_named(path) if excerpt.status == "not_found" else None
        return read(note) if note else excerpt

    def _said(self, path: str, part: Part) -> Excerpt | None:
        """Return what was said in a past conversation; None when it is not in the index, or not searched."""
        from memline.shared.index import driver
        from memline.shared.search.turns import read_turns

        if "sessions" not in self._agent.memory.sources:
            return None
        with driver.reading_if_any(self._agent.index_path) as reader:
            return read_turns(reader, path, part) if reader else None

    def _note_named(self, name: str) -> str | None:
        """Return the path of the one note with this title; None when there is none, or no index."""
        from memline.shared.index import driver, ledger

        found: list[str] = []
        # Without an index a path is still a path.
        with suppress(IndexFault), driver.reading_if_any(self._agent.index_path) as reader:
            found = named(ledger.names_of_notes(reader), name) if reader else []
        if len(found) > 1:
            raise BadRequest(f"several notes have this title: {', '.join(found[:5])}", hint="give a path")
        return found[0] if found else None

    def sync(self, *, force: bool, re_embed: bool, **hooks: Callable[[Any], None]) -> IndexReport:
        from memline.producers.runs.index_run import bring_up_to_date
        from memline.shared.embedders.local import downloads

        if downloads.missing(self._agent):
            downloads.fetch(self._agent)
        return bring_up_to_date(
            self._settings, self._agent, force=force, re_embed=re_embed, clock=self._clock, **hooks
        )

    def status(self, *, deep: bool, troubles: tuple[Trouble, ...] = ()) -> dict[str, Any]:
        from memline.producers.reports.status import examine
        from memline.shared.findings.diagnosis import queue_of

        queue = queue_of(self._settings)
        report, found = examine(self._agent, deep=deep, queue=queue, troubles=troubles)
        return report | self.told(found)

    def told(self, found: tuple[Finding, ...]) -> dict[str, Any]:
        from memline.shared.findings.diagnosis import merged, of_common, processes

        everything = merged(found, of_common(self._settings, [self._agent]))
        return {
            "findings": [each.to_json() for each in everything],
            "processes": [each.to_json() for each in processes(self._agent)],
        }

    def look(self) -> None:
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
                from memline.producers.ask import catch_up, fleet_limits
                from memline.shared.embedders.choice import choose
                from memline.shared.findings.answerer import Answerer
                from memline.shared.sync.freshness import is_fresh

                agent, choice = self._agent, choose(self._agent)
                # Beside a fleet a long-lived process leaves the index to the store worker: `watch` enqueues
                # every change. A command writes: it runs only when no query worker is alive.
                may_write = not (self._long_lived and self._settings.queue.url)
                look = partial(catch_up, agent, choice, clock=self._clock, may_write=may_write)
                search = Answerer(
                    agent,
                    choice=choice,
                    long_lived=self._long_lived,
                    caches_answers=self._long_lived,
                    limits=fleet_limits(self._settings, agent, choice),
                    queue=self._settings.queue.address if self._settings.queue.url else "",
                    clock=self._clock,
                )
                fresh = partial(is_fresh, agent, clock=self._clock)
                self._parts = (search, Staleness(look, is_fresh=fresh))
            return self._parts
