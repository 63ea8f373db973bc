"""Vectors as they travel: float32, little-endian, unit length; nothing else leaves a provider.

Both ways of computing, numpy and the standard library, agree to one unit in the last place, and to the
byte for a vector that has unit length already (it is passed on as it is).
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shared.errors import ProviderBrokenAnswer

if TYPE_CHECKING:
    from types import ModuleType

#: Bytes of one dimension.
FLOAT_BYTES = 4

#: Below this length a vector has no direction worth keeping.
MIN_LENGTH = 1e-10

#: A length this close to 1 is rounding; dividing again would only move the last bits.
UNIT_TOLERANCE = 1e-6

#: From this many vectors on, importing numpy (about 80 ms) costs less than doing without
#: (0.2 ms a vector of 1,536 dimensions, and most processes embed many requests).
NUMPY_WORTH_ROWS = 8

Values = Sequence[float] | bytes


def unit_vector(values: Values, *, dims: int | None) -> bytes:
    """`values` (numbers, or float32 little-endian bytes) scaled to unit length.

    Raises ProviderBrokenAnswer when they are no numbers, not finite, all zero or not `dims` many.
    """
    # The statement waits for a thread that is importing numpy right now; the entry in `sys.modules` is there
    # before the module is whole.
    numpy = _numpy() if "numpy" in sys.modules else None
    return _with_array(values, dims) if numpy is None else _with_numpy(numpy, values, dims)


def unit_vectors(rows: Sequence[Values], *, dims: int | None) -> list[bytes]:
    """`unit_vector` of every row; all rows must have the same number of dimensions."""
    numpy = _numpy() if len(rows) >= NUMPY_WORTH_ROWS else None
    vectors: list[bytes] = []
    for row in rows:
        vector = unit_vector(row, dims=dims) if numpy is None else _with_numpy(numpy, row, dims)
        dims = len(vector) // FLOAT_BYTES
        vectors.append(vector)
    return vectors


def expect_many() -> None:
    """Load numpy, if it is there, before many vectors come one by one."""
    _numpy()


def _numpy() -> ModuleType | None:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _with_numpy(numpy: Any, values: Values, dims: int | None) -> bytes:
    if isinstance(values, bytes):
        _check_bytes(values)
        numbers = numpy.frombuffer(values, dtype="<f4")
    else:
        numbers = numpy.array(_as_doubles(values))
    _check_count(len(numbers), dims)
    wide = numbers.astype(numpy.float64)
    with numpy.errstate(over="ignore", invalid="ignore"):
        length = math.sqrt(float(numpy.dot(wide, wide)))
    if _check_length(length):
        return bytes(numbers.astype("<f4").tobytes())
    return bytes((wide / length).astype("<f4").tobytes())


def _with_array(values: Values, dims: int | None) -> bytes:
    if isinstance(values, bytes):
        _check_bytes(values)
        numbers = array("f", values)
        if sys.byteorder == "big":
            numbers.byteswap()
    else:
        numbers = _as_doubles(values)
    _check_count(len(numbers), dims)
    try:
        length = math.sqrt(sum([x * x for x in numbers]))
    except OverflowError:
        length = math.inf
    unit = array("f", numbers if _check_length(length) else [x / length for x in numbers])
    if sys.byteorder == "big":
        unit.byteswap()
    return unit.tobytes()


def _as_doubles(values: Sequence[float]) -> array[float]:
    try:
        return array("d", values)
    except (TypeError, OverflowError) as error:
        raise ProviderBrokenAnswer(f"a vector holds something that is no number: {error}") from None


def _check_bytes(values: bytes) -> None:
    if len(values) % FLOAT_BYTES:
        raise ProviderBrokenAnswer(f"a vector has {len(values)} bytes; float32 needs a multiple of 4")


def _check_count(count: int, dims: int | None) -> None:
    if count == 0:
        raise ProviderBrokenAnswer("a vector is empty")
    if dims is not None and count != dims:
        raise ProviderBrokenAnswer(
            f"a vector has {count} dimensions; expected {dims}",
            hint="if the server changed its model: memline index --re-embed",
        )


def _check_length(length: float) -> bool:
    """True when `length` is 1 already. Raises for a vector without a direction."""
    if not math.isfinite(length):
        raise ProviderBrokenAnswer("a vector is not finite (NaN or infinity)")
    if length < MIN_LENGTH:
        raise ProviderBrokenAnswer("a vector is zero")
    return abs(length - 1.0) <= UNIT_TOLERANCE
