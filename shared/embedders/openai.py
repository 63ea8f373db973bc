"""OpenAI's `POST /embeddings`, and every server that speaks it (vLLM, Ollama, LM Studio, OpenRouter …)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from shared.embedders.connection import Reply
from shared.embedders.endpoint import Endpoint
from shared.embedders.protocol import Embedder, Identity, RequestCaps
from shared.embedders.remote import RemoteEmbedder
from shared.embedders.vectors import Values
from shared.errors import ProviderBrokenAnswer


def build(
    *, identity: Identity, endpoint: Endpoint, caps: RequestCaps, timeout_s: float, vector_dims: int
) -> Embedder:
    """The embedder of an identity. No network is used yet."""
    return OpenAIEmbedder(
        identity=identity, endpoint=endpoint, caps=caps, timeout_s=timeout_s, vector_dims=vector_dims
    )


class OpenAIEmbedder(RemoteEmbedder):
    """One model of OpenAI's or of a server that speaks its protocol. Safe to call from several threads."""

    known_dims = MappingProxyType(
        {
            "text-embedding-3-small": 1536,
            "text-embedding-3-large": 3072,
            "text-embedding-ada-002": 1536,
        }
    )

    #: Base64 is a third of the bytes of JSON numbers and decodes 3-4 times faster; until it is refused.
    _wants_base64 = True

    def _rows(self, texts: Sequence[str], *, as_query: bool, timeout_s: float | None) -> list[Values]:
        body = self._body(texts, as_query=as_query)
        reply = self._ask(body, timeout_s)
        if self._wants_base64 and _rejects_base64(reply):
            self._wants_base64 = False
            reply = self._ask(body, timeout_s)
        return _rows(self._http.json(reply), len(texts))

    def _body(self, texts: Sequence[str], *, as_query: bool) -> dict[str, object]:
        """The request for these texts; OpenAI makes no difference between a question and a text."""
        return request_body(self._identity, list(texts))

    def _ask(self, body: dict[str, object], timeout_s: float | None) -> Reply:
        if self._wants_base64:
            body = {**body, "encoding_format": "base64"}
        return self._http.post("/embeddings", body, timeout_s=timeout_s)


def request_body(identity: Identity, given: str | list[str]) -> dict[str, object]:
    """What OpenAI is asked for: the same in a request and in a row of a batch."""
    body: dict[str, object] = {"model": identity.model, "input": given}
    if identity.dims:
        body["dimensions"] = identity.dims
    return body


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
        rows[index] = values_of(item.get("embedding"))
    return [row for row in rows if row is not None]


def values_of(embedding: Any) -> Values:
    """The numbers of one `embedding`, base64 or not. Raises ProviderBrokenAnswer."""
    if isinstance(embedding, str):
        try:
            return base64.b64decode(embedding, validate=True)
        except (binascii.Error, ValueError):
            raise ProviderBrokenAnswer("a vector is not base64") from None
    if isinstance(embedding, list):
        return embedding
    raise ProviderBrokenAnswer("a vector is missing")
