"""Let agents use their memory: `Memory` for callers that may not be trusted, in JSON.

Every call names its caller, checks its parameters against the table, and answers with JSON of one shape for
MCP and HTTP, in which the text of notes is written out for a model (`for_model`). A problem that a caller
cannot solve by another call (no index, memory switched off, a chat that may not) is an answer with `warning`
and `action`; a call that is wrong is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from memline.producers.actions.perform import audited
from memline.producers.agent_view import Chat, agent_view, chat_of, gets_citations, may_use_memory
from memline.producers.agents.session_context import session_context
from memline.producers.calls.arguments import by_key, read
from memline.producers.calls.memory_calls import APPEND, CONTEXT, GET, SEARCH, STATUS
from memline.producers.memory import Memory, sees_private
from memline.producers.read_note import LINKED
from memline.shared.clock import SystemClock
from memline.shared.config.load import Options
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import (
    AccessDenied,
    BadRequest,
    ConfigError,
    IndexFault,
    IndexMissing,
    PathNotAllowed,
    UnknownAgent,
)
from memline.shared.figures.counters import HTTP, tally_of
from memline.shared.finding import Finding, Trouble
from memline.shared.findings.diagnosis import of_agent, of_error, of_own_settings, of_troubles
from memline.shared.index import driver
from memline.shared.search.request import SearchRequest, day_bounds, search_request
from memline.shared.search.results import Answer
from memline.shared.sources.excerpt import MAX_CHARS, Excerpt
from memline.shared.values import replace, value
from memline.shared.visible_text import for_model, visible

if TYPE_CHECKING:
    from memline.producers.reports.metrics import FleetCollector

Json = dict[str, Any]


@value
class Caller:
    """Who calls: an agent, and the key of its session when that is known."""

    agent: str
    session_key: str = ""
    #: By which face, for the metrics (`shared.figures.counters`).
    face: str = HTTP
    #: False for a token that only reads.


class MemoryTools:
    """The memories of the agents of one configuration. Safe to use from several threads; close it when done.

    Indexes stay open and vectors in memory between calls. Reports are imported when they are asked for:
    20-60 ms.
    """

    def __init__(
        self,
        settings: Settings,
        agents: tuple[str, ...],
        *,
        options_of: Callable[[AgentSettings], Options] = lambda _: Options(),
    ) -> None:
        """`options_of` returns the options that mean an agent's memory in every shell: hints name them."""
        self.settings = settings
        self._options_of = options_of
        #: The agents that may be asked for, by id.
        self.agents = agents
        self._clock = SystemClock()
        #: What is counted of calls.
        self.tally = tally_of(settings.account_path)
        self._lock = threading.Lock()
        self._memories: dict[str, Memory] = {}
        self._collector: FleetCollector | None = None

    def close(self) -> None:
        with self._lock:
            for memory in self._memories.values():
                memory.close()
            self._memories.clear()
        self.tally.write()

    def memory(self, agent: str) -> Memory:
        """Return the memory of an agent. Raises UnknownAgent for one that is not served here."""
        if agent not in self.agents:
            raise UnknownAgent(
                f"there is no agent {agent[:80]!r}", hint=f"name one of these: {', '.join(self.agents)}"
            )
        with self._lock:
            if agent not in self._memories:
                settings = self.settings.agents[agent]
                memory = Memory.of(self.settings, settings, long_lived=True, clock=self._clock)
                self._memories[agent] = memory
            return self._memories[agent]

    def hint(self, agent: str, text: str) -> str:
        """Return a hint whose commands work as they are typed, in whatever shell the user has."""
        known = self.settings.agents.get(agent) if agent in self.agents else None
        return self._options_of(known).as_typed(text) if known else text

    def _typed(self, settings: AgentSettings, body: Json) -> Json:
        """Put the options that mean this agent's memory in any shell into the commands of an answer."""
        as_typed = self._options_of(settings).as_typed
        found = [each | {"action": as_typed(each["action"])} for each in body["findings"]]
        if file := self.settings.file.newer():
            last = of_own_settings(file).to_json()
            found.append(last)
            if not body["warning"]:
                body = body | {"warning": last["what"], "action": last["action"]}
        return {**body, "action": as_typed(body["action"]), "findings": found}

    def search(self, caller: Caller, arguments: Mapping[str, Any]) -> Json:
        """Answer `memory_search`. Raises BadRequest."""
        memory = self.memory(caller.agent)
        settings, chat = memory.settings, chat_for(memory.settings, caller.session_key)
        request = request_of(read(SEARCH.takes_json, arguments), now=self._clock.now())
        if (denied := denied_answer(settings, chat)) is not None:
            return denied
        try:
            request = replace(request, private=sees_private(settings, chat))
            answer = memory.ask(request, face=caller.face)
        except IndexFault as error:
            no_answer = self._typed(settings, _no_answer(settings, of_error(settings, error)))
            return {**no_answer, "unavailable": True, "error": error.message}
        return self._typed(settings, view_for(chat, settings, answer.to_json()))

    def get(self, caller: Caller, arguments: Mapping[str, Any]) -> Json:
        """Answer `memory_get`.

        Raises BadRequest, PathNotAllowed for every file outside the memory, and AccessDenied. Of several
        paths one that is refused keeps none of the others back.
        """
        values = read(GET.takes_json, arguments)
        memory, chat = self._allowed(caller)
        several = values.get("paths", [])
        if ("path" in values) == bool(several):
            hint = "give as path a path or citation of a hit of memory_search, or as paths several of them"
            raise BadRequest("give path or paths, not both" if several else "path is missing", hint=hint)
        options: Json = {"lines": values.get("lines"), "around": values.get("around", 0), "chat": chat}
        if not several:
            return _for_model(memory.get(values["path"], first=values.get("from"), **options))
        if "from" in values:
            raise BadRequest("from is of one path, not of several", hint="name lines as path#L5-L7")

        excerpts: list[Json] = []
        most = max(LINKED // len(several), 1)
        for number, path in enumerate(several):
            # What the short ones leave is for those behind them.
            left = MAX_CHARS - sum(len(each["text"]) for each in excerpts)
            share = max(left // (len(several) - number), 1)
            try:
                excerpt = memory.get(path, max_chars=share, **options)
                few = replace(excerpt, links=excerpt.links[:most], backlinks=excerpt.backlinks[:most])
                excerpts.append(_for_model(few))
            except (BadRequest, PathNotAllowed, AccessDenied) as error:
                refused = Excerpt(path=path, text="", first=1, lines=0, truncated=False, next_from=None)
                where = {"workspace": str(memory.settings.workspace)}
                excerpts.append({**refused.to_json(), **where, "status": "refused", "error": error.message})
        is_cut = any(each["truncated"] for each in excerpts)
        whole = Excerpt(path="", text="", first=1, lines=0, truncated=is_cut, next_from=None)
        workspace = str(memory.settings.workspace)
        return {**whole.to_json(), "workspace": workspace, "excerpts": excerpts}

    def status(self, caller: Caller, arguments: Mapping[str, Any]) -> Json:
        """Answer `memory_status`: what there is to search, and what is missing. Raises BadRequest."""
        memory = self.memory(caller.agent)
        read(STATUS.takes_json, arguments)
        chat_for(memory.settings, caller.session_key)
        summary = memory.status().summary
        return self._typed(memory.settings, summary)

    def append(self, caller: Caller, arguments: Mapping[str, Any]) -> Json:
        """Answer `memory_append`. Raises BadRequest, and AccessDenied while `append.enabled` is off."""
        values = read(APPEND.takes_json, arguments)
        memory, chat = self._allowed(caller)
        if not memory.settings.memory.append.enabled:
            raise AccessDenied(
                "this agent may not write notes (memorySearch.append.enabled is false)",
                hint="tell the user; they can set memorySearch.append.enabled to true",
            )
        with audited(APPEND, caller.session_key or caller.agent) as line:
            line["agent"] = caller.agent
            return memory.append(**values, chat=chat).to_json()

    def context(self, caller: Caller, arguments: Mapping[str, Any]) -> Json:
        """Return what an agent reads when a session starts. Raises BadRequest and AccessDenied."""
        values = read(CONTEXT.takes_json, arguments)
        memory, chat = self._allowed(caller)
        return session_context(
            memory.settings, chat, is_private=values.get("private", False), clock=self._clock
        )

    def metrics(self) -> str:
        """Write queues, backlog, workers and providers of all agents for Prometheus."""
        from memline.producers.reports.metrics import FleetCollector, page

        agents = [self.memory(agent).settings for agent in self.agents]
        with self._lock:
            if self._collector is None:
                self._collector = FleetCollector(self.settings, agents)
        return page(self._collector)

    def check(self) -> None:
        """Raise IndexFault when the index of an agent is there and cannot be read."""
        for agent in self.agents:
            settings = self.memory(agent).settings
            if settings.memory.enabled:
                with suppress(IndexMissing), driver.reading(settings.index_path):
                    pass

    def _allowed(self, caller: Caller) -> tuple[Memory, Chat]:
        """Return memory and chat of a caller. Raises AccessDenied when it may not use the agent's memory."""
        memory = self.memory(caller.agent)
        chat = chat_for(memory.settings, caller.session_key)
        if (denied := denied_answer(memory.settings, chat)) is not None:
            raise AccessDenied(denied["warning"], hint=denied["action"])
        return memory, chat


def request_of(values: Mapping[str, Any], *, now: float, **more: Any) -> SearchRequest:
    """Return the question in these arguments; `more`: options that no caller gives. Raises BadRequest."""
    request = search_request(**by_key(SEARCH, values), **more)
    try:
        day_bounds(request, now)
    except ConfigError as error:
        hint = "give a date such as 2026-02-10, an age: 30d, or words: last week"
        raise BadRequest(error.message.removeprefix("--"), hint=hint) from error
    return request


def _for_model(excerpt: Excerpt) -> Json:
    links, backlinks = (
        tuple(replace(each, title=visible(each.title)) for each in names)
        for names in (excerpt.links, excerpt.backlinks)
    )
    return replace(excerpt, text=for_model(excerpt.text), links=links, backlinks=backlinks).to_json()


def chat_for(settings: AgentSettings, session_key: str) -> Chat:
    """Return the chat behind a session key. Raises AccessDenied for a key of another agent."""
    chat = chat_of(session_key)
    if chat.agent and chat.agent != settings.agent.lower():
        raise AccessDenied(
            f"the session key is of agent {chat.agent[:80]!r}, not of {settings.agent!r}",
            hint=f"give a key that begins with agent:{settings.agent}:, or ask for that agent",
        )
    return chat


def denied_answer(settings: AgentSettings, chat: Chat) -> Json | None:
    """Return the answer to a chat that may not use the agent's memory at all; None when it may."""
    if not settings.memory.enabled:
        return _no_answer(settings, of_agent(settings, codes=["memory_disabled"]))
    if not may_use_memory(settings.scope, chat):
        refused = Trouble(code="chat_refused", details={"chat": str(chat)})
        return _no_answer(settings, of_troubles(settings, refused))
    return None


def view_for(chat: Chat, settings: AgentSettings, answer: Mapping[str, Any]) -> Json:
    """Show the answer of a search, as JSON, as an agent sees it in this chat."""
    citations = gets_citations(settings.citations, chat)
    view = agent_view(answer, citations=citations, max_chars=settings.max_injected_chars)
    return {**view, "citations": settings.citations}


def _no_answer(settings: AgentSettings, found: tuple[Finding, ...]) -> Json:
    """Make an answer without results that says why, in the shape of one with results."""
    answer = Answer(findings=found, workspace=str(settings.workspace))
    empty = view_for(Chat(), settings, answer.to_json())
    return {**empty, "disabled": True, "unavailable": False, "error": answer.warning}
