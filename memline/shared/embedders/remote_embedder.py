"""Embed behind HTTP: the base of all such embedders checks every answer before a vector leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from memline.shared.clock import Clock
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.http import HttpClient
from memline.shared.embedders.protocol import Embedder, Identity
from memline.shared.embedders.vector_checks import FLOAT_BYTES, Values, unit_vectors
from memline.shared.errors import ProviderBrokenAnswer
from memline.shared.providers import known_dims


class RemoteEmbedder(Embedder, ABC):
    """One model behind one address. Safe to call from several threads."""

    def __init__(
        self,
        *,
        identity: Identity,
        endpoint: Endpoint,
        timeout_s: float = 60,
        vector_dims: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """`vector_dims`: what earlier vectors of this identity have; 0: the last answer tells."""
        self.identity = identity
        self._http = HttpClient(endpoint, timeout_s=timeout_s, clock=clock)
        usual = known_dims(identity.provider, identity.model) if endpoint.public else 0
        self._dims = identity.dims or vector_dims or usual
        self._last_dims = 0

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        return self._embed(texts, as_query=False, timeout_s=None)

    def embed_query(self, text: str, *, timeout_s: float) -> bytes:
        return self._embed([text], as_query=True, timeout_s=timeout_s)[0]

    def close(self) -> None:
        self._http.close()

    @abstractmethod
    def _rows(self, texts: Sequence[str], *, as_query: bool, timeout_s: float | None) -> list[Values]:
        """Ask the provider: one row a text, in their order, unchecked.

        Raises a ProviderError; a ProviderBrokenAnswer without a status is completed by the caller.
        """

    def _embed(self, texts: Sequence[str], *, as_query: bool, timeout_s: float | None) -> list[bytes]:
        if not texts:
            return []
        try:
            rows = self._rows(texts, as_query=as_query, timeout_s=timeout_s)
            vectors = unit_vectors(rows, dims=self._dims or self._last_dims or None)
        except ProviderBrokenAnswer as error:
            # Perhaps the answer before was the odd one: one bad answer must not spoil all that follow. What
            # the index takes is decided by its own vectors.
            self._last_dims = 0
            if error.status is not None:
                raise
            text = f"{self.identity.provider} embeddings failed: 200, but {error.message}"
            hint = error.hint
            if self.identity.dims and "dimensions" in error.message:
                hint = (
                    "if this repeats, remove memorySearch.outputDimensionality: not every model can shorten"
                )
            raise ProviderBrokenAnswer(text, hint=hint, status=200) from None
        self._last_dims = len(vectors[0]) // FLOAT_BYTES
        return vectors
