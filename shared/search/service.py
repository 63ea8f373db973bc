"""One agent's memory as something to ask: index, provider and health put together for `search`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import Choice, choose
from shared.index import health, identity, ledger, meta, vectors
from shared.search.answer import Context, search
from shared.search.query_vector import QueryEmbedder
from shared.search.reader import SearchIndex
from shared.search.results import Answer, Behind, SearchRequest

if TYPE_CHECKING:
    from shared.search.remembered import Remembered


class MemorySearch:
    """Answers questions for one agent. Safe to use from several threads; close it when done."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        choice: Choice | None = None,
        long_lived: bool = False,
        remembers: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`remembers`: a question that was answered a moment ago is not looked up again."""
        self._settings = settings
        self._choice = choice or choose(settings)
        self._clock = clock or SystemClock()
        self._index = SearchIndex(
            settings.index_path,
            long_lived=long_lived,
            vec_enabled=settings.memory.store.vector.enabled,
            extension_path=settings.memory.store.vector.extension_path,
        )
        self._embedder = QueryEmbedder(settings, self._choice, clock=self._clock)
        self._remembered: Remembered | None = None
        if remembers:
            from shared.search.remembered import Remembered

            self._remembered = Remembered()

    def close(self) -> None:
        self._embedder.close()
        self._index.close()

    def ask(
        self, request: SearchRequest, *, files_behind: int = 0, warning: str = "", action: str = ""
    ) -> Answer:
        """Answer a question; `files_behind` is how many changed files the caller knows of.

        `warning` and `action` are the caller's, and come before what is said here.

        Raises IndexFaults (IndexMissing: there is nothing to search yet) and ConfigError for a bad date.
        """
        if self._remembered is None or warning:
            return self._answer(request, files_behind, warning, action)
        # Read before the answer: what is committed meanwhile must not count as seen.
        version = self._index.version()
        question = (request, files_behind)
        found = self._remembered.get(question, version)
        if found is None:
            found = self._answer(request, files_behind, warning, action)
            self._remembered.put(question, version, found)
        return found

    def _answer(self, request: SearchRequest, files_behind: int, warning: str, action: str) -> Answer:
        with self._index.snapshot() as connection:
            active = identity.active(connection)
            target = identity.target(connection)
            pending = 0
            # Asked first, because counting 50,000 vectors takes a sixth of a warm search.
            if target and vectors.is_pending(connection, target.id):
                pending = vectors.backlog(connection, target.id).pending
            fallback = meta.get(connection, meta.FALLBACK)
            state = health.read(connection, active.identity.provider) if active else health.Health()
            allowed = self._settings.memory.sources
            is_closed = ledger.has_others(connection, allowed)
        choice = self._choice
        if fallback is None and choice.fallback_from:
            fallback = {"from": choice.fallback_from, "reason": choice.reason}
        if not warning and choice.identity is None and choice.requested not in ("auto", "none"):
            warning, action = choice.reason, choice.action
        elif not warning and state.paused and pending:
            warning, action = f"{state.reason}; {pending} vectors wait", state.action
        context = Context(
            provider=active.identity.provider if active else choice.provider,
            model=active.identity.model if active else choice.model,
            fallback=fallback,
            # What was indexed while a source was switched on is not shown once it is off.
            sources=allowed if is_closed else (),
            behind=Behind(files=files_behind, vectors=pending),
            warning=warning,
            action=action,
        )
        embed_query = None
        if active is not None and active.vector_dims and choice.requested != "none":
            embed_query = partial(self._embedder.embed, active=active, state=state)
        answer = search(
            self._index,
            request,
            self._settings.memory.query,
            embed_query=embed_query,
            context=context,
            clock=self._clock,
        )
        if request.source and request.source not in allowed:
            why = f"the source {request.source} is switched off for this agent (memorySearch.sources)"
            return replace(answer, notice=why)
        return answer
