"""Speak Gemini's own protocol: `:batchEmbedContents` for texts, `:embedContent` for a question.

The scheme of an identity tells texts from questions: by task types in the request (`GEMINI_TASKS`), or, for
models that take no task type, by prompts before the texts (`GEMINI_PROMPTS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from memline.shared.embedders.protocol import Identity
from memline.shared.embedders.remote_embedder import RemoteEmbedder
from memline.shared.embedders.vector_checks import Values
from memline.shared.errors import ProviderBrokenAnswer
from memline.shared.providers import GEMINI_PROMPTS
from memline.shared.words import counted

#: The prompts that Google documents for searching with gemini-embedding-2.
TEXT_PROMPT = "title: none | text: "
QUESTION_PROMPT = "task: search result | query: "


class GeminiEmbedder(RemoteEmbedder):
    """One model of Gemini's. Safe to call from several threads."""

    def _rows(self, texts: Sequence[str], *, as_query: bool, timeout_s: float | None) -> list[Values]:
        # A name with a slash or a question mark must not become another path.
        path = f"/models/{quote(self.identity.model, safe='')}"
        if as_query:
            body = request(self.identity, texts[0], as_query=True)
            reply = self._http.call("POST", f"{path}:embedContent", body=body, timeout_s=timeout_s)
            return [values_of(_part(self._http.json(reply), "embedding"))]
        body = {"requests": [whole_request(self.identity, text) for text in texts]}
        reply = self._http.call("POST", f"{path}:batchEmbedContents", body=body, timeout_s=timeout_s)
        embeddings = _part(self._http.json(reply), "embeddings")
        if not isinstance(embeddings, list):
            raise ProviderBrokenAnswer("`embeddings` is not a list")
        if len(embeddings) != len(texts):
            raise ProviderBrokenAnswer(
                f"it has {counted(len(embeddings), 'vector')} for {counted(len(texts), 'text')}"
            )
        return [values_of(embedding) for embedding in embeddings]


def request(identity: Identity, text: str, *, as_query: bool) -> dict[str, object]:
    """Make the request of one text; a row of a batch holds the same."""
    body: dict[str, object] = {}
    if identity.scheme == GEMINI_PROMPTS:
        text = (QUESTION_PROMPT if as_query else TEXT_PROMPT) + text
    else:
        document_task, _, query_task = identity.scheme.partition("/")
        body["taskType"] = query_task if as_query else document_task
    body["content"] = {"parts": [{"text": text}]}
    if identity.dims:
        body["outputDimensionality"] = identity.dims
    return body


def whole_request(identity: Identity, text: str) -> dict[str, object]:
    """Make the request of a text among others, which names the model itself."""
    return {"model": f"models/{identity.model}", **request(identity, text, as_query=False)}


def _part(answer: Any, name: str) -> Any:
    part = answer.get(name) if isinstance(answer, dict) else None
    if part is None:
        raise ProviderBrokenAnswer(f"there is no `{name}` in the answer")
    return part


def values_of(embedding: Any) -> Values:
    """Return the numbers of one `ContentEmbedding`. Raises ProviderBrokenAnswer."""
    values = embedding.get("values") if isinstance(embedding, dict) else None
    if not isinstance(values, list):
        raise ProviderBrokenAnswer("a vector is missing")
    return values
