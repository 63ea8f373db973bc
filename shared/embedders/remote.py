"""What all providers behind HTTP have in common: every answer is checked before a vector leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from shared.clock import Clock
from shared.embedders.endpoint import Endpoint
from shared.embedders.http import HttpClient
from shared.embedders.protocol import Identity, RequestCaps
from shared.embedders.vectors import FLOAT_BYTES, Values, unit_vectors
from shared.errors import ProviderBrokenAnswer


class RemoteEmbedder(ABC):
    """One model behind one address. Safe to call from several threads."""

    #: Dimensions of the public models when none are asked for.
    known_dims: ClassVar[Mapping[str, int]] = MappingProxyType({})

    def __init__(
        self,
        *,
        identity: Identity,
        endpoint: Endpoint,
        caps: RequestCaps,
        timeout_s: float = 60,
        vector_dims: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """`vector_dims`: what earlier vectors of this identity have; 0: the last answer tells."""
        self._identity = identity
        self._caps = caps
        self._http = HttpClient(endpoint, timeout_s=timeout_s, clock=clock)
        known = self.known_dims.get(identity.model, 0) if endpoint.public else 0
        self._dims = identity.dims or vector_dims or known
        self._last_dims = 0

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def caps(self) -> RequestCaps:
        return self._caps

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
            if error.status is None:
                raise self._broken(error) from None
            raise
        self._last_dims = len(vectors[0]) // FLOAT_BYTES
        return vectors

    def _broken(self, error: ProviderBrokenAnswer) -> ProviderBrokenAnswer:
        hint = error.hint
        if self._identity.dims and "dimensions" in error.message:
            hint = "if this repeats, remove memorySearch.outputDimensionality: not every model can shorten"
        return ProviderBrokenAnswer(
            f"{self._identity.provider} embeddings failed: 200, but {error.message}", hint=hint, status=200
        )
