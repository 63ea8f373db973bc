"""Embed behind HTTP: the protocols of OpenAI, Voyage and Gemini.

Many servers speak OpenAI's `POST /embeddings` (vLLM, Ollama, LM Studio …); Voyage's has an input type as
well, and Gemini has `:batchEmbedContents` for texts and `:embedContent` for a question. Every answer is
checked before a vector leaves. What a batch sends of each text is made here too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from memline.shared.clock import Clock
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.http import HttpClient, Reply
from memline.shared.embedders.protocol import (
    Embedder,
    Identity,
    Values,
    current_call,
    unit_vectors,
)
from memline.shared.errors import ProviderBrokenAnswer
from memline.shared.providers import GEMINI_PROMPTS
from memline.shared.values import as_dict
from memline.shared.words import counted

#: The prompts that Google documents for searching with gemini-embedding-2.
TEXT_PROMPT = "title: none | text: "
QUESTION_PROMPT = "task: search result | query: "


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
        """`vector_dims`: what earlier vectors of this identity have; 0: the index tells where they differ."""
        self.identity = identity
        self._http = HttpClient(endpoint, timeout_s=timeout_s, clock=clock)
        self._dims = identity.dims or vector_dims

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
            return unit_vectors(
                self._rows(texts, as_query=as_query, timeout_s=timeout_s), dims=self._dims or None
            )
        except ProviderBrokenAnswer as error:
            if error.status is not None:
                raise
            text = f"{self.identity.provider} embeddings failed: 200, but {error.message}"
            hint = error.hint
            if self.identity.dims and "dimensions" in error.message:
                hint = (
                    "if this repeats, remove memorySearch.outputDimensionality: not every model can shorten"
                )
            raise ProviderBrokenAnswer(text, hint=hint, status=200) from None


class OpenAIEmbedder(RemoteEmbedder):
    """One model of OpenAI's or of a server that speaks its protocol."""

    #: Base64 is a third of the bytes of JSON numbers and decodes 3-4 times faster; until it is refused.
    _wants_base64 = True

    def _rows(self, texts: Sequence[str], *, as_query: bool, timeout_s: float | None) -> list[Values]:
        body = self._body(texts, as_query=as_query)
        reply = self._ask(body, timeout_s)
        is_rejected = reply.status in (400, 415, 422, 501) and b"encoding_format" in reply.body
        if self._wants_base64 and is_rejected:
            self._wants_base64 = False
            reply = self._ask(body, timeout_s)
        answer = as_dict(self._http.json(reply))
        if type(tokens := as_dict(answer.get("usage")).get("total_tokens")) is int:
            current_call().used_tokens = max(tokens, 0)
        data = _listed(answer, "data", len(texts))
        is_numbered = any(as_dict(item).get("index") is not None for item in data)
        rows: dict[int, Values] = {}
        for position, item in enumerate(map(as_dict, data)):
            index = item.get("index") if is_numbered else position
            if type(index) is not int or index in rows or not 0 <= index < len(texts):
                raise ProviderBrokenAnswer(f"row {position} of `data` has the index {str(index)[:20]!r}")
            rows[index] = openai_values(item.get("embedding"))
        return [rows[index] for index in range(len(texts))]

    def _body(self, texts: Sequence[str], *, as_query: bool) -> dict[str, object]:
        """Make the request for these texts; OpenAI's is the same for a question and a text."""
        return openai_request(self.identity, list(texts))

    def _ask(self, body: dict[str, object], timeout_s: float | None) -> Reply:
        if self._wants_base64:
            body = {**body, "encoding_format": "base64"}
        return self._http.call("POST", "/embeddings", body=body, timeout_s=timeout_s)


def openai_request(identity: Identity, texts: str | list[str]) -> dict[str, object]:
    """Make the body of a request; a row of a batch holds the same."""
    body: dict[str, object] = {"model": identity.model, "input": texts}
    if identity.dims:
        body["dimensions"] = identity.dims
    return body


def openai_values(embedding: Any) -> Values:
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


class GeminiEmbedder(RemoteEmbedder):
    """One model of Gemini's.

    The scheme of its identities tells texts from questions: by task types in the request (`GEMINI_TASKS`), or
    by prompts before the texts (`GEMINI_PROMPTS`), for models that take no task type.
    """

    def _rows(self, texts: Sequence[str], *, as_query: bool, timeout_s: float | None) -> list[Values]:
        if as_query:
            body = gemini_request(self.identity, texts[0], as_query=True)
            embeddings = [self._ask("embedContent", body, timeout_s).get("embedding")]
        else:
            body = {"requests": [gemini_row(self.identity, text) for text in texts]}
            answer = self._ask("batchEmbedContents", body, timeout_s)
            embeddings = _listed(answer, "embeddings", len(texts))
        return [gemini_values(embedding) for embedding in embeddings]

    def _ask(self, call: str, body: dict[str, object], timeout_s: float | None) -> dict[str, Any]:
        # A name with a slash or a question mark must not become another path.
        path = f"/models/{quote(self.identity.model, safe='')}:{call}"
        return as_dict(self._http.json(self._http.call("POST", path, body=body, timeout_s=timeout_s)))


def gemini_request(identity: Identity, text: str, *, as_query: bool = False) -> dict[str, object]:
    """Make the request of one text."""
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


def gemini_row(identity: Identity, text: str) -> dict[str, object]:
    """Make the request of a text among others, in a request or a batch: it names the model itself."""
    return {"model": f"models/{identity.model}", **gemini_request(identity, text)}


def gemini_values(embedding: Any) -> Values:
    """Return the numbers of one `ContentEmbedding`. Raises ProviderBrokenAnswer."""
    values = as_dict(embedding).get("values")
    if not isinstance(values, list):
        raise ProviderBrokenAnswer("a vector is missing")
    return values


def _listed(answer: dict[str, Any], name: str, count: int) -> list[Any]:
    """Return the list of so many items in an answer. Raises ProviderBrokenAnswer."""
    items = answer.get(name)
    if not isinstance(items, list):
        raise ProviderBrokenAnswer(f"there is no list `{name}` in the answer")
    if len(items) != count:
        raise ProviderBrokenAnswer(f"it has {counted(len(items), 'vector')} for {counted(count, 'text')}")
    return items
