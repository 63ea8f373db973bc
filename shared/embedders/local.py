"""Embedding with a GGUF model in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.embedders.endpoint import Endpoint
from shared.embedders.llama import SharedModel
from shared.embedders.prompts import PROMPTS
from shared.embedders.protocol import Identity, RequestCaps
from shared.embedders.vectors import FLOAT_BYTES, unit_vector
from shared.errors import ProviderBrokenAnswer, ProviderStop


class LocalEmbedder:
    """One model file. Nothing is loaded before the first text; all embedders of a file share one model."""

    def __init__(self, *, identity: Identity, path: Path, caps: RequestCaps, vector_dims: int = 0) -> None:
        """`vector_dims`: what earlier vectors of this identity have; 0: there are none."""
        if identity.scheme not in PROMPTS:
            raise ProviderStop(
                f"vectors were made with prompts that are not known: {identity.scheme}",
                hint="run: memline index",
            )
        self._identity = identity
        self._caps = caps
        self._prompts = PROMPTS[identity.scheme]
        self._vector_dims = vector_dims
        self._shared = SharedModel(path, identity.endpoint)

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def caps(self) -> RequestCaps:
        return self._caps

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        model = self._shared.get()
        return [self._fitted(model.embed(self._prompts.document, text)) for text in texts]

    def embed_query(self, text: str, *, timeout_s: float) -> bytes:
        return self._fitted(self._shared.get().embed(self._prompts.query, text, timeout_s=timeout_s))

    def close(self) -> None:
        self._shared.release()

    def _fitted(self, vector: bytes) -> bytes:
        """The vector with the dimensions that were asked for: the first ones, of unit length again."""
        dims = self._identity.dims
        found = len(vector) // FLOAT_BYTES
        if dims > found:
            raise ProviderStop(
                f"the model {self._identity.model} has {found} dimensions, not {dims}",
                hint="remove memorySearch.outputDimensionality",
            )
        if dims and dims < found:
            vector = unit_vector(vector[: dims * FLOAT_BYTES], dims=dims)
        if self._vector_dims and len(vector) != self._vector_dims * FLOAT_BYTES:
            raise ProviderBrokenAnswer(
                f"a vector has {len(vector) // FLOAT_BYTES} dimensions; expected {self._vector_dims}",
                hint="run: memline index --re-embed",
            )
        return vector


def build(
    *, identity: Identity, endpoint: Endpoint, caps: RequestCaps, timeout_s: float, vector_dims: int
) -> LocalEmbedder:
    """The embedder of the model file that the address of `endpoint` names; see `shared.embedders.choice`."""
    path = Path(unquote(urlsplit(endpoint.base_url).path))
    return LocalEmbedder(identity=identity, path=path, caps=caps, vector_dims=vector_dims)
