"""Define what every embedding provider offers, and the values that pass through it.

A vector is `bytes` everywhere outside a provider: float32, little-endian, unit length, `4 * dims` long;
`unit_vectors` checks what a provider gives and makes it so. Messages and SQLite hold it as it is; only search
reads the numbers.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Protocol

import msgspec
from msgspec.structs import asdict

from memline.shared.errors import ProviderBrokenAnswer, ProviderError
from memline.shared.packages import lack


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Names all that makes two vectors comparable. Vectors of different identities are never mixed."""

    provider: str
    model: str
    #: Digest of base address and non-secret headers; empty for the public endpoint.
    endpoint: str = ""
    #: Dimensions that were asked for; 0 when the model's own are taken.
    dims: int = 0
    #: Input types or prompt prefixes of texts and questions, e.g. `document/query`.
    scheme: str = ""

    @property
    def key(self) -> str:
        """SHA-256 (hex, 64 characters) of the canonical JSON of all fields."""
        return canonical_digest(asdict(self))

    def differences(self, other: Identity) -> str:
        """Name what tells two identities apart, as a user calls it."""
        different = (name for field, name in _NAMES.items() if getattr(self, field) != getattr(other, field))
        return " and ".join(different)


_NAMES = {
    "provider": "provider",
    "model": "model",
    "endpoint": "address or headers",
    "dims": "dimensions",
    "scheme": "input type, prompt or windows",
}


def canonical_digest(content: object) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of `content`."""
    # Here, because a search without vectors never comes here: 3 ms.
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return sha256(canonical.encode("utf-8", "replace")).hexdigest()


class LateVector(bytes):
    """A vector with those of its text's tokens, which the same pass of a local model made."""

    #: As `shared.embedders.token_vectors` packs them, with all dimensions of the model.
    tokens: bytes

    def __new__(cls, vector: bytes, tokens: bytes) -> LateVector:
        made = super().__new__(cls, vector)
        made.tokens = tokens
        return made


class Embedder(Protocol):
    """One provider with one model. Safe to call from several threads."""

    identity: Identity

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector a text, in order; each a `LateVector` where the model also gives those of tokens.

        Raises a `shared.errors.ProviderError`; never returns fewer, other or unchecked vectors.
        """

    def embed_query(self, text: str, *, timeout_s: float) -> bytes:
        """Return the vector of a question. Raises a `ProviderError`, also when `timeout_s` is over."""

    def close(self) -> None:
        """Free connections or the model; the embedder is not used afterwards."""


#: Attempts of a call to a provider: most trouble of a moment is over with the second.
CALL_ATTEMPTS = 3


class Call(msgspec.Struct):
    """A call of a provider: how often it may be tried, and what it may cost."""

    max_attempts: int = CALL_ATTEMPTS
    #: Attempts that were answered, or that may have been paid for without an answer.
    paid: int = 0
    #: Tokens that the answer counts (`usage`); 0 when it does not say.
    used_tokens: int = 0

    def count(self, error: ProviderError | None) -> None:
        """Count an attempt by how it ended; `counted_call` does so for the last one."""
        self.paid += error is None or error.maybe_paid or isinstance(error, ProviderBrokenAnswer)


_call: ContextVar[Call | None] = ContextVar("call", default=None)


def current_call() -> Call:
    """Return the call that this thread makes; outside of `counted_call` one that nobody counts."""
    return _call.get() or Call()


@contextmanager
def counted_call(max_attempts: int = CALL_ATTEMPTS) -> Iterator[Call]:
    """Count the attempts of the call inside the block.

    `max_attempts`: a failed attempt is a request like any other to a provider that counts them, and a probe
    that is sent three times is not a single probe.
    """
    call = Call(max_attempts)
    token = _call.set(call)
    try:
        yield call
    except ProviderError as error:
        call.count(error)
        raise
    else:
        call.count(None)
    finally:
        _call.reset(token)


# Vectors.

#: Bytes of one dimension.
FLOAT_BYTES = 4

#: Below this length a vector has no direction worth keeping.
MIN_LENGTH = 1e-10

#: A length this close to 1 is rounding; dividing again would only move the last bits.
UNIT_TOLERANCE = 1e-6

#: From this many vectors on, numpy is worth its import (about 80 ms): a process that embeds them embeds many.
NUMPY_WORTH_ROWS = 8

Values = Sequence[float] | bytes


def unit_vector(values: Values, *, dims: int | None) -> bytes:
    """Scale `values` (numbers, or float32 little-endian bytes) to unit length.

    Raises ProviderBrokenAnswer when they are not numbers, not finite, all zero or not `dims` many.
    """
    return unit_vectors([values], dims=dims)[0]


def unit_vectors(rows: Sequence[Values], *, dims: int | None) -> list[bytes]:
    """Do as `unit_vector` for every row; all rows must have the same number of dimensions."""
    made = [_packed(row) for row in rows]
    for row in made:
        size = len(row) // FLOAT_BYTES
        if not size:
            raise ProviderBrokenAnswer("a vector is empty")
        if dims is not None and size != dims:
            raise ProviderBrokenAnswer(
                f"a vector has {size} dimensions; expected {dims}",
                hint="if the server changed its model: memline index --re-embed",
            )
        dims = size
    numpy = None if len(made) < NUMPY_WORTH_ROWS or lack("numpy") else sys.modules["numpy"]
    if numpy is None:
        lengths = [math.hypot(*memoryview(row).cast("f")) for row in made]
    else:
        block = numpy.frombuffer(b"".join(made), "<f4").reshape(len(made), -1)
        lengths = numpy.sqrt(numpy.einsum("ij,ij->i", block, block, dtype=numpy.float64)).tolist()
    for length in lengths:
        if not math.isfinite(length):
            raise ProviderBrokenAnswer("a vector is not finite (NaN or infinity)")
        if length < MIN_LENGTH:
            raise ProviderBrokenAnswer("a vector is zero")
    others = [place for place, length in enumerate(lengths) if abs(length - 1.0) > UNIT_TOLERANCE]
    if others and numpy is not None:
        scaled = block[others] / numpy.array(lengths, "<f4")[others, None]
    for number, place in enumerate(others):
        if numpy is None:
            made[place] = array(
                "f", [x / lengths[place] for x in memoryview(made[place]).cast("f")]
            ).tobytes()
        else:
            made[place] = scaled[number].tobytes()
    return made


def _packed(values: Values) -> bytes:
    if not isinstance(values, bytes):
        try:
            return array("f", values).tobytes()
        except (TypeError, OverflowError) as error:
            raise ProviderBrokenAnswer(f"a vector holds something that is not a number: {error}") from None
    if len(values) % FLOAT_BYTES:
        raise ProviderBrokenAnswer(f"a vector has {len(values)} bytes; float32 needs a multiple of 4")
    return values
