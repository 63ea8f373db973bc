"""Voyage's `POST /embeddings`: OpenAI's protocol, and a word for whether a text or a question is embedded.

The scheme of an identity is `<input type of texts>/<input type of questions>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from shared.embedders.endpoint import Endpoint
from shared.embedders.openai import OpenAIEmbedder
from shared.embedders.protocol import Embedder, Identity, RequestCaps


def build(
    *, identity: Identity, endpoint: Endpoint, caps: RequestCaps, timeout_s: float, vector_dims: int
) -> Embedder:
    """The embedder of an identity. No network is used yet."""
    return VoyageEmbedder(
        identity=identity, endpoint=endpoint, caps=caps, timeout_s=timeout_s, vector_dims=vector_dims
    )


class VoyageEmbedder(OpenAIEmbedder):
    """One model of Voyage's. Safe to call from several threads."""

    known_dims = MappingProxyType(
        {
            "voyage-4-large": 1024,
            "voyage-4": 1024,
            "voyage-4-lite": 1024,
            "voyage-3-large": 1024,
            "voyage-3.5": 1024,
            "voyage-3.5-lite": 1024,
            "voyage-code-3": 1024,
            "voyage-finance-2": 1024,
            "voyage-law-2": 1024,
        }
    )

    def _body(self, texts: Sequence[str], *, as_query: bool) -> dict[str, object]:
        return {"input": list(texts), **parameters(self._identity, as_query=as_query)}


def parameters(identity: Identity, *, as_query: bool) -> dict[str, object]:
    """A request without its texts: the same for a request and for a batch."""
    of_texts, _, of_questions = identity.scheme.partition("/")
    given: dict[str, object] = {
        "model": identity.model,
        "input_type": of_questions if as_query else of_texts,
        # Else the end of a text above the model's window is left out without a word.
        "truncation": False,
    }
    if identity.dims:
        given["output_dimension"] = identity.dims
    return given
