"""Speak OpenAI's `POST /embeddings`, as Voyage and many servers do (vLLM, Ollama, LM Studio …)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from memline.shared.embedders.http import Reply
from memline.shared.embedders.protocol import Identity, current_call
from memline.shared.embedders.remote_embedder import RemoteEmbedder
from memline.shared.embedders.vector_checks import Values
from memline.shared.errors import ProviderBrokenAnswer
from memline.shared.words import counted


class OpenAIEmbedder(RemoteEmbedder):
    """One model of OpenAI's or of a server that speaks its protocol. Safe to call from several threads."""

    #: Base64 is a third of the bytes of JSON numbers and decodes 3-4 times faster; until it is refused.
    _wants_base64 = True

    def _rows(self, texts: Sequence[str], *, as_query: bool, timeout_s: float | None) -> list[Values]:
        body = self._body(texts, as_query=as_query)
        reply = self._ask(body, timeout_s)
        is_rejected = reply.status in (400, 415, 422, 501) and b"encoding_format" in reply.body
        if self._wants_base64 and is_rejected:
            self._wants_base64 = False
            reply = self._ask(body, timeout_s)
        answer = self._http.json(reply)
        usage = answer.get("usage") if isinstance(answer, dict) else None
        if isinstance(usage, dict) and type(tokens := usage.get("total_tokens")) is int:
            current_call().used_tokens = max(tokens, 0)
        return _rows(answer, len(texts))

    def _body(self, texts: Sequence[str], *, as_query: bool) -> dict[str, object]:
        """Make the request for these texts; OpenAI's is the same for a question and a text."""
        return request_body(self.identity, list(texts))

    def _ask(self, body: dict[str, object], timeout_s: float | None) -> Reply:
        if self._wants_base64:
            body = {**body, "encoding_format": "base64"}
        return self._http.call("POST", "/embeddings", body=body, timeout_s=timeout_s)


class VoyageEmbedder(OpenAIEmbedder):
    """One model of Voyage's, which has an input type that tells texts from questions.

    The scheme of its identities is `<input type of texts>/<input type of questions>`.
    """

    def _body(self, texts: Sequence[str], *, as_query: bool) -> dict[str, object]:
        return {"input": list(texts), **voyage_parameters(self.identity, as_query=as_query)}


def voyage_parameters(identity: Identity, *, as_query: bool) -> dict[str, object]:
    """Make a request without its texts; a batch has the same."""
    document_type, _, query_type = identity.scheme.partition("/")
    body: dict[str, object] = {
        "model": identity.model,
        "input_type": query_type if as_query else document_type,
        # Else the end of a text above the model's window is left out without a word.
        "truncation": False,
    }
    if identity.dims:
        body["output_dimension"] = identity.dims
    return body


def request_body(identity: Identity, texts: str | list[str]) -> dict[str, object]:
    """Make the body of a request; a row of a batch holds the same."""
    body: dict[str, object] = {"model": identity.model, "input": texts}
    if identity.dims:
        body["dimensions"] = identity.dims
    return body


def _rows(answer: Any, count: int) -> list[Values]:
    """Return the vectors of an answer in the order of the texts. Raises ProviderBrokenAnswer."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise ProviderBrokenAnswer("there is no list `data` in the answer")
    if len(data) != count:
        raise ProviderBrokenAnswer(f"it has {counted(len(data), 'vector')} for {counted(count, 'text')}")
    rows: list[Values | None] = [None] * count
    numbered = any(isinstance(item, dict) and item.get("index") is not None for item in data)
    for position, item in enumerate(data):
        if not isinstance(item, dict):
            raise ProviderBrokenAnswer(f"row {position} of `data` is not an object")
        index = item.get("index") if numbered else position
        if type(index) is not int or not 0 <= index < count:
            raise ProviderBrokenAnswer(f"row {position} of `data` has the index {str(index)[:20]!r}")
        if rows[index] is not None:
            raise ProviderBrokenAnswer(f"two vectors have the index {index}")
        rows[index] = values_of(item.get("embedding"))
    return [row for row in rows if row is not None]


def values_of(embedding: Any) -> Values:
    """Return the numbers of one `embedding`, base64 or not. Raises ProviderBrokenAnswer."""
    if isinstance(embedding, str):
        try:
            # Strictly, and in 6 us for 1,536 numbers, where base64 takes 30.
            return msgspec.convert(embedding, bytes)
        except (msgspec.ValidationError, ValueError):
            raise ProviderBrokenAnswer("a vector is not base64") from None
    if isinstance(embedding, list):
        return embedding
    raise ProviderBrokenAnswer("a vector is missing")
