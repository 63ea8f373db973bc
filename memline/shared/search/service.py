"""Search one agent's memory: put index and question together for `retrieve`.

What embedding costs, and what may not be sent, is the matter of the `QuestionEmbedder` that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.protocol import LateVector
from memline.shared.finding import Trouble
from memline.shared.index import identities, ledger
from memline.shared.index.identities import IdentityRow
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Answer
from memline.shared.search.retrieve import ModelSwitched, QueryVector, retrieve
from memline.shared.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection
    from typing import Protocol
else:
    Protocol = object

#: How often a question is embedded for one answer. A second time is for a switch of the model meanwhile.
QUESTION_ATTEMPTS = 3


class QuestionEmbedder(Protocol):
    """Makes the vector of a question. Safe to use from several threads."""

    def of(self, connection: Connection, active: IdentityRow) -> Callable[[str], bytes]:
        """Return what embeds a question under an identity, as the rows of the index allow it now.

        The function is called with no transaction open. It raises a ProviderError: at once, while the
        provider may not be asked.
        """

    def close(self) -> None:
        """Close the connection to the provider."""


class MemorySearch:
    """Searches for one agent. Safe to use from several threads; close it when done."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        questions: Callable[[], QuestionEmbedder] | None = None,
        long_lived: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`questions`: called once the index has vectors; None searches keywords alone.

        `long_lived`: keep vectors in memory.
        """
        vector_store = settings.memory.store.vector
        self._settings = settings
        self._clock = clock or SystemClock()
        #: What else is read of the index for an answer is read through it.
        self.index = SearchIndex(
            settings.index_path,
            long_lived=long_lived,
            vec_enabled=vector_store.enabled,
            extension_path=vector_store.extension_path,
        )
        self._questions = questions
        self._embedder: QuestionEmbedder | None = None

    def close(self) -> None:
        for part in (self._embedder, self.index):
            if part is not None:
                part.close()

    def ask(self, request: SearchRequest) -> Answer:
        """Answer a question.

        Raises IndexFaults (IndexMissing: there is nothing to search yet) and ConfigError for a bad date.
        """
        # The question is embedded again when the writer switches to another model meanwhile.
        for _ in range(QUESTION_ATTEMPTS):
            with suppress(ModelSwitched):
                return self._answer(request)
        return self._answer(request, troubles=(Trouble(code="model_switching"),))

    def _answer(self, request: SearchRequest, *, troubles: tuple[Trouble, ...] = ()) -> Answer:
        """Answer; after a trouble of its own, by keywords alone."""
        allowed = self._settings.memory.sources
        is_off = request.source not in ("", *allowed)
        if is_off:
            troubles += (Trouble(code="source_off", details={"source": request.source}),)
        embed = None
        with self.index.snapshot() as connection:
            active = identities.active(connection)
            if not troubles and active is not None and active.vector_dims and self._questions is not None:
                if self._embedder is None:
                    self._embedder = self._questions()
                embed = self._embedder.of(connection, active)
            has_other_sources = ledger.has_others(connection, allowed)

        def embed_query(text: str) -> QueryVector:
            assert embed is not None and active is not None
            vector = embed(text)
            tokens = vector.tokens if isinstance(vector, LateVector) else b""
            return QueryVector(embedding=vector, identity_id=active.id, tokens=tokens)

        base = Answer(troubles=troubles)
        if active is not None:
            base = replace(base, provider=active.identity.provider, model=active.identity.model)
        answer = retrieve(
            self.index,
            request,
            self._settings.memory.query,
            embed_query=embed_query if embed is not None else None,
            base=base,
            # What was indexed while a source was switched on is not shown once it is off.
            sources=allowed if has_other_sources else (),
            chunk_tokens=self._settings.memory.chunking.tokens,
            clock=self._clock,
        )
        off = f"nothing was searched: the source {request.source} is switched off"
        return replace(answer, notice=off) if is_off else answer
