"""Answer questions about one agent's memory: put index, provider and health together for `retrieve`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.embedders.protocol import LateVector
from memline.shared.index import identities, ledger, meta
from memline.shared.index.accounts import AccountFile, Accounts
from memline.shared.scheduling import breaker, health
from memline.shared.scheduling.budget import Budget, refusal_of
from memline.shared.scheduling.limits import FileLimits, Limits
from memline.shared.search.query_vector import QueryEmbedder
from memline.shared.search.reader import SearchIndex
from memline.shared.search.results import Answer, Behind, SearchRequest
from memline.shared.search.retrieve import ModelSwitched, QueryVector, retrieve
from memline.shared.search.staleness import DiskState
from memline.shared.sync.model_state import model_state
from memline.shared.values import replace
from memline.shared.words import counted

#: Answers kept, about 5 KB each; the oldest is dropped first.
MAX_ANSWERS = 256

#: Seconds a cached answer is good for: ages of notes and dates such as `30d` move with the clock.
ANSWER_GOOD_FOR_S = 60.0

#: How often a question is embedded for one answer. A second time is for a switch of the model meanwhile.
QUESTION_ATTEMPTS = 3


class MemorySearch:
    """Answers questions for one agent. Safe to use from several threads; close it when done."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        choice: Choice | None = None,
        long_lived: bool = False,
        caches_answers: bool = False,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`long_lived`: keep vectors in memory. `caches_answers`: reuse the answer to a repeated question.

        `limits`: those of a fleet; None for those of the home.
        """
        vector_store = settings.memory.store.vector
        self._settings = settings
        self._choice = choice or choose(settings)
        self._clock = clock or SystemClock()
        self._index = SearchIndex(
            settings.index_path,
            long_lived=long_lived,
            vec_enabled=vector_store.enabled,
            extension_path=vector_store.extension_path,
        )
        self._account_file = AccountFile(settings.account_path)
        limits = limits or FileLimits(self._account_file, self._clock)
        budget = Budget.of(self._account_file, settings)
        self._embedder = QueryEmbedder(
            settings, self._choice, limits=limits, budget=budget, clock=self._clock
        )
        self._reranker = None
        if settings.memory.query.rerank.model_path.strip():
            # Here, because few configurations have one: 10 ms.
            from memline.shared.embedders.local.reranker import Reranker

            self._reranker = Reranker(settings)
        self._cache = AnswerCache() if caches_answers else None

    def close(self) -> None:
        if self._reranker is not None:
            self._reranker.close()
        self._embedder.close()
        self._index.close()
        self._account_file.close()

    def ask(self, request: SearchRequest, disk: DiskState | None = None) -> Answer:
        """Answer a question; `disk` is how the index compares to the files, and comes first in the warning.

        Raises IndexFaults (IndexMissing: there is nothing to search yet) and ConfigError for a bad date.
        """
        disk = disk or DiskState()
        if self._cache is None or disk.warning:
            return self._answer_settled(request, disk)
        # Read before the answer: what is committed meanwhile must not count as seen.
        state = (disk.files_behind, self._index.version())
        answer = self._cache.get(request, state)
        if answer is None:
            answer = self._answer_settled(request, disk)
            self._cache.put(request, state, answer)
            return answer
        # Nothing was searched this time.
        return replace(answer, timings={}) if answer.timings else answer

    def _answer_settled(self, request: SearchRequest, disk: DiskState) -> Answer:
        """Answer; embed the question again when the writer switches to another model meanwhile."""
        for _ in range(QUESTION_ATTEMPTS):
            with suppress(ModelSwitched):
                return self._answer(request, disk)
        why = "only keywords were searched: the model changes again and again"
        unsettled = replace(disk, warning=disk.warning or why, action=disk.action or "search again")
        return self._answer(request, unsettled, embeds=False)

    def _answer(self, request: SearchRequest, disk: DiskState, *, embeds: bool = True) -> Answer:
        with self._index.snapshot() as connection:
            active = identities.active(connection)
            model = model_state(connection, self._settings, self._choice)
            pending = model.missing
            fallback = meta.get(connection, meta.FALLBACK)
            refusal = refusal_of(connection, self._settings.limits, self._clock.now())
            state = breaker.Health()
            if active:
                accounts = Accounts(index=connection, file=self._account_file, name="")
                state = health.read(accounts, active.identity.provider, model=active.identity.model)
            allowed = self._settings.memory.sources
            has_other_sources = ledger.has_others(connection, allowed)
        choice = self._choice
        if fallback is None and choice.fallback_from:
            fallback = {"from": choice.fallback_from, "reason": choice.reason}
        warning, action = disk.warning, disk.action
        if not warning and choice.identity is None and choice.requested not in ("auto", "none"):
            warning, action = choice.reason, choice.action
        elif not warning and refusal is not None and pending:
            warning, action = f"{refusal.reason}; {counted(pending, 'vector', 'wait')}", refusal.action
        elif not warning and state.paused and pending:
            warning, action = f"{state.reason}; {counted(pending, 'vector', 'wait')}", state.action
        elif not warning and model.reason:
            warning, action = model.reason, "memline index"
        base = Answer(
            provider=active.identity.provider if active else choice.provider,
            model=active.identity.model if active else choice.model,
            fallback=fallback,
            behind=Behind(files=disk.files_behind, vectors=pending),
            warning=warning,
            action=action,
        )
        embed_query = None
        if embeds and active is not None and active.vector_dims and choice.requested != "none":
            embed_query = partial(self._embed, active=active, state=state)
        answer = retrieve(
            self._index,
            request,
            self._settings.memory.query,
            embed_query=embed_query,
            reranker=self._reranker,
            base=base,
            # What was indexed while a source was switched on is not shown once it is off.
            sources=allowed if has_other_sources else (),
            chunk_tokens=self._settings.memory.chunking.tokens,
            clock=self._clock,
        )
        if answer.stale and not answer.action:
            answer = replace(answer, action="memline index, or leave memline up running")
        if request.source in ("", *allowed):
            return answer
        why = f"the source {request.source} is switched off for this agent (memorySearch.sources)"
        return replace(answer, notice=why)

    def _embed(self, text: str, active: identities.IdentityRow, state: breaker.Health) -> QueryVector:
        vector = self._embedder.embed(text, active, state)
        tokens = vector.tokens if isinstance(vector, LateVector) else b""
        return QueryVector(embedding=vector, identity_id=active.id, tokens=tokens)


class AnswerCache:
    """Keep answers by question and state of the index: agents ask the same twice, and several at once.

    An answer is good as long as nothing was committed to the index since. One with a warning is not kept.
    Safe to use from several threads.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        #: (question, state of the index) -> (when it was answered, the answer).
        self._answers: dict[Hashable, tuple[float, Answer]] = {}

    def get(self, question: Hashable, state: Hashable) -> Answer | None:
        """Return the answer to this question in this state of the index, if it is still good."""
        answered, answer = self._answers.get((question, state), (0.0, None))
        return answer if self._monotonic() - answered <= ANSWER_GOOD_FOR_S else None

    def put(self, question: Hashable, state: Hashable, answer: Answer) -> None:
        """Keep an answer, unless something was wrong when it was given."""
        if answer.warning:
            return
        with self._lock:
            self._answers.pop((question, state), None)
            self._answers[question, state] = (self._monotonic(), answer)
            if len(self._answers) > MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
