"""Check vectors and bring them to their form: float32, little-endian, unit length.

A vector that has unit length already is passed on as it is.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence

from memline.shared.errors import ProviderBrokenAnswer
from memline.shared.packages import lack

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
    for place, length in enumerate(_lengths(made)):
        if not math.isfinite(length):
            raise ProviderBrokenAnswer("a vector is not finite (NaN or infinity)")
        if length < MIN_LENGTH:
            raise ProviderBrokenAnswer("a vector is zero")
        if abs(length - 1.0) > UNIT_TOLERANCE:
            made[place] = array("f", [x / length for x in memoryview(made[place]).cast("f")]).tobytes()
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


def _lengths(rows: Sequence[bytes]) -> list[float]:
    if len(rows) < NUMPY_WORTH_ROWS or lack("numpy"):
        return [math.hypot(*memoryview(row).cast("f")) for row in rows]
    numpy = sys.modules["numpy"]
    block = numpy.frombuffer(b"".join(rows), "<f4").reshape(len(rows), -1)
    lengths: list[float] = numpy.sqrt(numpy.einsum("ij,ij->i", block, block, dtype=numpy.float64)).tolist()
    return lengths
