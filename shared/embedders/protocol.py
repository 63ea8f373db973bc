"""What every embedding provider offers, and the values that pass through it.

A vector is `bytes` everywhere outside a provider: float32, little-endian, unit length, `4 * dims` long.
It goes through messages and into SQLite as it is; only search looks inside.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from shared.values import value


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What makes two vectors comparable. Vectors of different identities are never mixed."""

    provider: str
    model: str
    #: Digest of base address and non-secret headers; empty for the public endpoint.
    endpoint: str = ""
    #: Dimensions that were asked for; 0 when the model's own are taken.
    dims: int = 0
    #: How texts are dressed before embedding: input types or prompt prefixes, e.g. `document/query`.
    scheme: str = ""

    @property
    def key(self) -> str:
        """SHA-256 (hex, 64 characters) of the canonical JSON of all fields."""
        # Here, because a search without vectors never comes here: 2.5 ms.
        import hashlib

        canonical = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


@value
class RequestCaps:
    """The largest request a provider takes; the dispatcher packs up to these."""

    max_rows: int
    #: Tokens of all texts together, by the estimate of `shared.sources.tokens`.
    max_tokens: int
    #: Tokens of one text.
    max_text_tokens: int


class Embedder(Protocol):
    """One provider with one model. Safe to call from several threads."""

    @property
    def identity(self) -> Identity: ...

    @property
    def caps(self) -> RequestCaps: ...

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """One vector a text, in order.

        Raises a `shared.errors.ProviderError`; never returns fewer, other or unchecked vectors.
        """
        ...

    def embed_query(self, text: str, *, timeout_s: float) -> bytes:
        """The vector of a question. Raises a `shared.errors.ProviderError`, also when `timeout_s` is over."""
        ...

    def close(self) -> None:
        """Free connections or the model; the embedder is not used afterwards."""
        ...
