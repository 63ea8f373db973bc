"""The vector of a question, always under the identity of the vectors it is compared with."""

from __future__ import annotations

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import Choice, build_for_identity
from shared.embedders.protocol import Embedder
from shared.errors import ProviderLater
from shared.index.health import Health
from shared.index.identity import IdentityRow

#: Seconds a question waits for its vector; then keyword hits are better than more waiting.
QUERY_TIMEOUT_S = 8.0


class QueryEmbedder:
    """Embeds questions for one agent; keeps its connection for the next question."""

    def __init__(
        self,
        settings: AgentSettings,
        choice: Choice,
        *,
        clock: Clock | None = None,
        timeout_s: float = QUERY_TIMEOUT_S,
    ) -> None:
        self._settings = settings
        self._choice = choice
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._embedder: Embedder | None = None

    def close(self) -> None:
        if self._embedder is not None:
            self._embedder.close()
            self._embedder = None

    def embed(self, text: str, active: IdentityRow, state: Health) -> bytes:
        """The vector of `text` under `active`. Raises a ProviderError, at once while there is a hold."""
        wait_s = state.hold_until - self._clock.now()
        if wait_s > 0:
            raise ProviderLater(
                f"{active.identity.provider} is on hold for {wait_s:.0f} s: {state.reason}",
                hint="ask again after that; keyword search goes on",
            )
        return self._embedder_of(active).embed_query(text, timeout_s=self._timeout_s)

    def _embedder_of(self, active: IdentityRow) -> Embedder:
        if self._embedder is None or self._embedder.identity.key != active.identity.key:
            self.close()
            chosen = self._choice.identity
            if chosen is not None and chosen.key == active.identity.key:
                self._embedder = self._choice.build(vector_dims=active.vector_dims)
            else:
                # The model is being changed: the old vectors are searched until the new ones are complete.
                self._embedder = build_for_identity(
                    self._settings, active.identity, active.base_url, vector_dims=active.vector_dims
                )
        return self._embedder
