"""OpenAI's `POST /embeddings`, and every server that speaks it (vLLM, Ollama, LM Studio, OpenRouter …)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from shared.clock import Clock
from shared.embedders.endpoint import Endpoint
from shared.embedders.http import HttpClient, Reply
from shared.embedders.protocol import Embedder, Identity, RequestCaps
from shared.embedders.vectors import FLOAT_BYTES, Values, unit_vectors
from shared.errors import ProviderBrokenAnswer

#: Dimensions of the public models when none are asked for.
KNOWN_DIMS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}


def build(
    *, identity: Identity, endpoint: Endpoint, caps: RequestCaps, timeout_s: float, vector_dims: int
) -> Embedder:
    """The embedder of an identity. No network is used yet."""
    return OpenAIEmbedder(
        identity=identity, endpoint=endpoint, caps=caps, timeout_s=timeout_s, vector_dims=vector_dims
    )


class OpenAIEmbedder:
    """One model behind one address. Safe to call from several threads."""

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
        """`vector_dims`: what earlier vectors of this identity have; 0: the first answer tells."""
        self._identity = identity
        self._caps = caps
        self._http = HttpClient(endpoint, "/embeddings", timeout_s=timeout_s, clock=clock)
        known = KNOWN_DIMS.get(identity.model, 0) if endpoint.public else 0
        self._dims = identity.dims or vector_dims or known
        #: Base64 is a third of the bytes of JSON numbers and decodes 3-4 times faster.
        self._wants_base64 = True

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def caps(self) -> RequestCaps:
        return self._caps

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        return self._embed(texts, timeout_s=None)

    def embed_query(self, text: str, *, timeout_s: float) -> bytes:
        return self._embed([text], timeout_s=timeout_s)[0]

    def close(self) -> None:
        self._http.close()

    def _embed(self, texts: Sequence[str], *, timeout_s: float | None) -> list[bytes]:
        if not texts:
            return []
        reply = self._ask(texts, timeout_s)
        if self._wants_base64 and _rejects_base64(reply):
            self._wants_base64 = False
            reply = self._ask(texts, timeout_s)
        try:
            rows = _rows(self._http.json(reply), len(texts))
            vectors = unit_vectors(rows, dims=self._dims or None)
        except ProviderBrokenAnswer as error:
            if error.status is None:
                raise self._broken(error) from None
            raise
        self._dims = len(vectors[0]) // FLOAT_BYTES
        return vectors

    def _ask(self, texts: Sequence[str], timeout_s: float | None) -> Reply:
        body: dict[str, object] = {"model": self._identity.model, "input": list(texts)}
        if self._wants_base64:
            body["encoding_format"] = "base64"
        if self._identity.dims:
            body["dimensions"] = self._identity.dims
        return self._http.post(body, timeout_s=timeout_s)

    def _broken(self, error: ProviderBrokenAnswer) -> ProviderBrokenAnswer:
        hint = error.hint
        if self._identity.dims:
            hint = "if this repeats, remove memorySearch.outputDimensionality: not every model can shorten"
        return ProviderBrokenAnswer(
            f"{self._identity.provider} embeddings failed: 200, but {error.message}", hint=hint, status=200
        )


def _rejects_base64(reply: Reply) -> bool:
    return reply.status in (400, 415, 422, 501) and b"encoding_format" in reply.body


def _rows(answer: Any, count: int) -> list[Values]:
    """The vectors of an answer in the order of the texts. Raises ProviderBrokenAnswer."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise ProviderBrokenAnswer("there is no list `data` in the answer")
    if len(data) != count:
        raise ProviderBrokenAnswer(f"it has {len(data)} vectors for {count} texts")
    rows: list[Values | None] = [None] * count
    numbered = any(isinstance(item, dict) and item.get("index") is not None for item in data)
    for position, item in enumerate(data):
        if not isinstance(item, dict):
            raise ProviderBrokenAnswer(f"row {position} of `data` is no object")
        index = item.get("index") if numbered else position
        if type(index) is not int or not 0 <= index < count:
            raise ProviderBrokenAnswer(f"row {position} of `data` has the index {str(index)[:20]!r}")
        if rows[index] is not None:
            raise ProviderBrokenAnswer(f"two vectors have the index {index}")
        rows[index] = _values(item.get("embedding"))
    return [row for row in rows if row is not None]


def _values(embedding: Any) -> Values:
    if isinstance(embedding, str):
        try:
            return base64.b64decode(embedding, validate=True)
        except (binascii.Error, ValueError):
            raise ProviderBrokenAnswer("a vector is not base64") from None
    if isinstance(embedding, list):
        return embedding
    raise ProviderBrokenAnswer("a vector is missing")
