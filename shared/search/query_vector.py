"""The vector of a question, always under the identity of the vectors it is compared with."""

from __future__ import annotations

import threading

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import Choice, build_for_identity
from shared.embedders.protocol import Embedder
from shared.errors import ProviderLater, ProviderStop
from shared.index.health import Health
from shared.index.identity import IdentityRow

#: Seconds a question waits for its vector; then keyword hits are better than more waiting.
QUERY_TIMEOUT_S = 8.0

#: A call that failed is paid for with so many times its length before the next: a provider that is silent
#: holds up one question in a while, and not every one until its time is over.
HOLD_SHARE = 4


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
        self._lock = threading.Lock()
        self._embedders: dict[tuple[str, int], Embedder] = {}
        #: Nobody asks before this time (seconds since the epoch): one was told to wait, or did in vain.
        self._held_until = 0.0
        self._held_for = ""

    def close(self) -> None:
        with self._lock:
            for embedder in self._embedders.values():
                embedder.close()
            self._embedders.clear()

    def embed(self, text: str, active: IdentityRow, state: Health) -> bytes:
        """The vector of `text` under `active`.

        Raises a ProviderError: at once, without a call, while the provider is paused or on hold.
        """
        if state.paused:
            raise ProviderStop(state.reason, hint=state.action or "memline index")
        held_until = max(state.hold_until, self._held_until)
        wait_s = held_until - self._clock.now()
        if wait_s > 0:
            why = state.reason if held_until == state.hold_until else self._held_for
            raise ProviderLater(
                f"{active.identity.provider} is on hold for {wait_s:.0f} s: {why}",
                hint="ask again after that; keyword search goes on",
                retry_after_s=wait_s,
            )
        began = self._clock.now()
        try:
            return self._embedder_of(active).embed_query(text, timeout_s=self._timeout_s)
        except ProviderLater as error:
            now = self._clock.now()
            self._held_until = now + (error.retry_after_s or HOLD_SHARE * (now - began))
            self._held_for = error.message
            raise

    def _embedder_of(self, active: IdentityRow) -> Embedder:
        key = (active.identity.key, active.vector_dims)
        with self._lock:
            embedder = self._embedders.get(key)
            if embedder is None:
                chosen = self._choice.identity
                if chosen is not None and chosen.key == active.identity.key:
                    embedder = self._choice.build(vector_dims=active.vector_dims)
                else:
                    # The model is being changed: the old vectors are searched until the new are complete.
                    embedder = build_for_identity(
                        self._settings, active.identity, active.base_url, vector_dims=active.vector_dims
                    )
                # Those of former identities stay open: another thread may be using them.
                self._embedders[key] = embedder
            return embedder
