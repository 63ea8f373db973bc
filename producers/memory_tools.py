"""What an agent can do with its memory: the one object behind the command line, MCP and HTTP.

Every call names its caller, checks its parameters against `shared/search/parameters.py`, and answers with
JSON of one shape whoever carries it. Trouble that a caller can do nothing about in its call (no index, memory
switched off, a chat that may not) is an answer with `warning` and `action`; a call that is wrong is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from producers.ask import DiskState, bring_in
from producers.freshness import Freshness
from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings, Settings
from shared.embedders.choice import choose
from shared.errors import (
    AccessDenied,
    BadRequest,
    ConfigError,
    IndexFault,
    IndexMissing,
    QueueError,
    UnknownAgent,
)
from shared.search import parameters
from shared.search.chats import Chat, chat_of, gets_citations, may_use_memory
from shared.search.dates import day_of_time, parse_bound
from shared.search.injected import injected
from shared.search.results import Answer, SearchRequest
from shared.search.service import MemorySearch
from shared.sources.excerpt import cited, read_excerpt
from shared.sources.scope import Scope
from shared.values import value

if TYPE_CHECKING:
    from producers.metrics import FleetCollector


@value
class Caller:
    """Who calls: an agent, and the key of its session when that is known."""

    agent: str
    session_key: str = ""


class MemoryTools:
    """The memory of the agents of one configuration. Safe to use from several threads; close it when done.

    `long_lived` keeps indexes open and vectors in memory between calls.
    """

    def __init__(
        self, settings: Settings, agents: tuple[str, ...], *, long_lived: bool, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        #: The agents that may be asked for, by id.
        self.agents = agents
        self._long_lived = long_lived
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._opened: dict[str, _Opened] = {}
        self._collector: FleetCollector | None = None

    def close(self) -> None:
        with self._lock:
            for opened in self._opened.values():
                opened.memory.close()
            self._opened.clear()

    def agent(self, agent: str) -> AgentSettings:
        """The settings of an agent. Raises UnknownAgent for one that is not served here."""
        if agent not in self.agents:
            raise UnknownAgent(
                f"there is no agent {agent[:80]!r}", hint=f"the agents are: {', '.join(self.agents)}"
            )
        return self._settings.agents[agent]

    def search(self, caller: Caller, given: Mapping[str, Any], *, is_text: bool = False) -> dict[str, Any]:
        """`memory_search`. `is_text`: all values are texts, as in a URL. Raises BadRequest."""
        settings = self.agent(caller.agent)
        request = self._request(parameters.read(parameters.SEARCH, given, is_text=is_text))
        chat = chat_of(caller.session_key)
        if (refused := no_memory(settings, chat)) is not None:
            return refused
        try:
            answer = self._ask(settings, request)
        except IndexFault as error:
            return _no_answer(
                settings,
                unavailable=True,
                error=error.message,
                warning=f"memory search is unavailable: {error.message}",
                action=error.hint or "memline doctor",
            )
        return seen_in(chat, settings, answer.to_json())

    def get(self, caller: Caller, given: Mapping[str, Any], *, is_text: bool = False) -> dict[str, Any]:
        """`memory_get`. Raises BadRequest, and PathNotAllowed for everything that is no memory file."""
        settings = self.agent(caller.agent)
        found = parameters.read(parameters.GET, given, is_text=is_text)
        self._demand(settings, caller)
        named = cited(found["path"])
        if "from" in found:
            named = replace(named, first=found["from"], lines=None)
        excerpt = read_excerpt(
            Scope(settings.workspace, settings.memory.extra_paths),
            named.path,
            first=named.first or 1,
            lines=found.get("lines", named.lines),
            clock=self._clock,
        )
        return excerpt.to_json()

    def status(self, caller: Caller, given: Mapping[str, Any], *, is_text: bool = False) -> dict[str, Any]:
        """`memory_status`: what there is to search, and what is missing. Raises BadRequest."""
        from producers.status import collect, digest

        settings = self.agent(caller.agent)
        parameters.read(parameters.STATUS, given, is_text=is_text)
        return digest(settings, collect(settings))

    def append(self, caller: Caller, given: Mapping[str, Any], *, is_text: bool = False) -> dict[str, Any]:
        """`memory_append`. Raises BadRequest, and AccessDenied while `append.enabled` is off."""
        from producers.remember import remember

        settings = self.agent(caller.agent)
        found = parameters.read(parameters.APPEND, given, is_text=is_text)
        self._demand(settings, caller)
        added = remember(settings, chat_of(caller.session_key), found, clock=self._clock)
        if self._long_lived:
            # It is found by its words from now on. It stands in its note even if the index is in trouble,
            # and the next search says so.
            with suppress(IndexFault):
                self._open(settings).freshness.look_now()
        return added

    def context(self, caller: Caller, given: Mapping[str, Any], *, is_text: bool = False) -> dict[str, Any]:
        """What an agent reads when a session starts. Raises BadRequest and AccessDenied."""
        from producers.session_context import session_context

        settings = self.agent(caller.agent)
        found = parameters.read(parameters.CONTEXT, given, is_text=is_text)
        self._demand(settings, caller)
        chat = chat_of(caller.session_key)
        return session_context(settings, chat, is_private=found.get("private", False), clock=self._clock)

    def overview(self, agents: tuple[str, ...], *, with_queues: bool) -> dict[str, Any]:
        """The status of these agents, and of the queues of a fleet."""
        from producers.queue_report import report

        found: dict[str, Any] = {
            "agents": [self.status(Caller(agent=agent), {}) for agent in agents],
            "queues": None,
        }
        if with_queues and self._settings.queue.url:
            with suppress(QueueError):
                found["queues"] = report(self._settings, [self.agent(agent) for agent in agents])
        return found

    def metrics(self) -> str:
        """What Prometheus is told of queues, backlog, workers and providers of all agents."""
        from producers.metrics import FleetCollector, page

        with self._lock:
            if self._collector is None:
                agents = [self.agent(agent) for agent in self.agents]
                self._collector = FleetCollector(self._settings, agents)
        return page(self._collector)

    def check(self) -> None:
        """Raises IndexFault when the index of an agent is there and cannot be read."""
        from shared.index import driver

        for agent in self.agents:
            settings = self.agent(agent)
            if settings.memory.enabled:
                with suppress(IndexMissing), driver.reading(settings.index_path):
                    pass

    def _request(self, found: Mapping[str, Any]) -> SearchRequest:
        today = day_of_time(self._clock.now())
        for name in ("since", "until"):
            if found.get(name):
                try:
                    parse_bound(found[name], today, option=name)
                except ConfigError as error:
                    raise BadRequest(
                        error.message, hint="a date such as 2026-02-10, or an age: 30d"
                    ) from error
        source = found.get("source", "all")
        return SearchRequest(
            query=found["query"],
            max_results=found.get("maxResults"),
            min_score=found.get("minScore"),
            source="" if source == "all" else source,
            path_glob=found.get("path", ""),
            since=found.get("since", ""),
            until=found.get("until", ""),
        )

    def _ask(self, settings: AgentSettings, request: SearchRequest) -> Answer:
        warning = action = ""
        if request.source == "sessions" and "sessions" not in settings.memory.sources:
            warning = "past sessions are not searched for this agent"
            action = "set memorySearch.experimental.sessionMemory and sources, or search source memory"
        if not self._long_lived:
            from producers.ask import ask

            answer = ask(settings, request, clock=self._clock)
            return replace(answer, warning=answer.warning or warning, action=answer.action or action)
        opened = self._open(settings)
        state = opened.freshness.state()
        try:
            return opened.answer(request, state, warning, action)
        except IndexMissing:
            # Moved away since the last look; another one builds it again from the files.
            return opened.answer(request, opened.freshness.look_now(), warning, action)

    def _open(self, settings: AgentSettings) -> _Opened:
        with self._lock:
            if settings.agent not in self._opened:
                choice = choose(settings)
                # With a fleet the store worker writes, and `watch` tells it of every change.
                look = partial(
                    bring_in, settings, choice, clock=self._clock, may_write=not self._settings.queue.url
                )
                self._opened[settings.agent] = _Opened(
                    memory=MemorySearch(
                        settings, choice=choice, long_lived=True, remembers=True, clock=self._clock
                    ),
                    freshness=Freshness(look),
                )
            return self._opened[settings.agent]

    def _demand(self, settings: AgentSettings, caller: Caller) -> None:
        """Raises AccessDenied when this caller may not use the agent's memory."""
        if (refused := no_memory(settings, chat_of(caller.session_key))) is not None:
            raise AccessDenied(refused["warning"], hint=refused["action"])


@value
class _Opened:
    """What is kept of one agent between calls."""

    memory: MemorySearch
    freshness: Freshness

    def answer(self, request: SearchRequest, state: DiskState, warning: str, action: str) -> Answer:
        """The answer; `warning` and `action` are said unless the files have more to say."""
        return self.memory.ask(
            request,
            files_behind=state.files_behind,
            warning=state.warning or warning,
            action=state.action or action,
        )


def no_memory(settings: AgentSettings, chat: Chat) -> dict[str, Any] | None:
    """The answer to a chat that may not use the agent's memory at all; None when it may."""
    if not settings.memory.enabled:
        return _no_answer(
            settings,
            warning="memory search is disabled for this agent (memorySearch.enabled)",
            action="set memorySearch.enabled to true in the configuration, if the agent is to have a memory",
        )
    if not may_use_memory(settings.scope, chat):
        return _no_answer(
            settings,
            warning=f"memory may not be used in this chat ({chat})",
            action="answer without memory; memory.scope in the configuration says where it may be used",
        )
    return None


def seen_in(chat: Chat, settings: AgentSettings, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a search, as JSON, as an agent sees it in this chat."""
    made = injected(
        answer,
        citations=gets_citations(settings.citations, chat),
        max_chars=settings.max_injected_chars,
    )
    return {**made, "citations": settings.citations}


def _no_answer(settings: AgentSettings, **said: Any) -> dict[str, Any]:
    """An answer without results that says why; the shape of one with results."""
    empty = Answer(warning=said["warning"], action=said["action"]).to_json()
    return {
        **injected(empty, citations=False, max_chars=0),
        "citations": settings.citations,
        "disabled": True,
        "unavailable": said.get("unavailable", False),
        "error": said.get("error", said["warning"]),
    }
