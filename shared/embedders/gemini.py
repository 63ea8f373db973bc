"""Gemini's own protocol: `:batchEmbedContents` for texts, `:embedContent` for a question.

The scheme of an identity says how the two are told apart: by task types in the request (`GEMINI_TASKS`), or,
for models that take no task type, by prompts before the texts (`GEMINI_PROMPTS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from shared.embedders.catalog import GEMINI_PROMPTS
from shared.embedders.endpoint import Endpoint
from shared.embedders.protocol import Embedder, Identity, RequestCaps
from shared.embedders.remote import RemoteEmbedder
from shared.embedders.vectors import Values
from shared.errors import ProviderBrokenAnswer

#: The prompts that Google documents for searching with gemini-embedding-2.
TEXT_PROMPT = "title: none | text: "
QUESTION_PROMPT = "task: search result | query: "


def build(
    *, identity: Identity, endpoint: Endpoint, caps: RequestCaps, timeout_s: float, vector_dims: int
) -> Embedder:
    """The embedder of an identity. No network is used yet."""
    return GeminiEmbedder(
        identity=identity, endpoint=endpoint, caps=caps, timeout_s=timeout_s, vector_dims=vector_dims
    )


class GeminiEmbedder(RemoteEmbedder):
    """One model of Gemini's. Safe to call from several threads."""

    known_dims = MappingProxyType(
        {"gemini-embedding-001": 3072, "gemini-embedding-2": 3072, "gemini-embedding-2-preview": 3072}
    )

    def _rows(self, texts: Sequence[str], *, as_query: bool, timeout_s: float | None) -> list[Values]:
        # A name with a slash or a question mark must not become another path.
        path = f"/models/{quote(self._identity.model, safe='')}"
        if as_query:
            reply = self._http.post(
                f"{path}:embedContent", request(self._identity, texts[0], as_query=True), timeout_s=timeout_s
            )
            return [values_of(_part(self._http.json(reply), "embedding"))]
        body = {"requests": [whole_request(self._identity, text) for text in texts]}
        reply = self._http.post(f"{path}:batchEmbedContents", body, timeout_s=timeout_s)
        embeddings = _part(self._http.json(reply), "embeddings")
        if not isinstance(embeddings, list):
            raise ProviderBrokenAnswer("`embeddings` is no list")
        if len(embeddings) != len(texts):
            raise ProviderBrokenAnswer(f"it has {len(embeddings)} vectors for {len(texts)} texts")
        return [values_of(embedding) for embedding in embeddings]


def request(identity: Identity, text: str, *, as_query: bool) -> dict[str, object]:
    """One text as Gemini is asked for it: the same in a request and in a row of a batch."""
    made: dict[str, object] = {}
    if identity.scheme == GEMINI_PROMPTS:
        text = (QUESTION_PROMPT if as_query else TEXT_PROMPT) + text
    else:
        of_texts, _, of_questions = identity.scheme.partition("/")
        made["taskType"] = of_questions if as_query else of_texts
    made["content"] = {"parts": [{"text": text}]}
    if identity.dims:
        made["outputDimensionality"] = identity.dims
    return made


def whole_request(identity: Identity, text: str) -> dict[str, object]:
    """The request of a text that stands among others and so names the model itself."""
    return {"model": f"models/{identity.model}", **request(identity, text, as_query=False)}


def _part(answer: Any, name: str) -> Any:
    part = answer.get(name) if isinstance(answer, dict) else None
    if part is None:
        raise ProviderBrokenAnswer(f"there is no `{name}` in the answer")
    return part


def values_of(embedding: Any) -> Values:
    """The numbers of one `ContentEmbedding`. Raises ProviderBrokenAnswer."""
    values = embedding.get("values") if isinstance(embedding, dict) else None
    if not isinstance(values, list):
        raise ProviderBrokenAnswer("a vector is missing")
    return values
