"""Check vectors and bring them to their form: float32, little-endian, unit length.

Both implementations, numpy and the standard library, agree to one unit in the last place, and to the byte
for a vector that has unit length already (it is passed on as it is).
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from types import ModuleType

from memline.shared.errors import ProviderBrokenAnswer
from memline.shared.packages import lack

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
    """Scale `values` (numbers, or float32 little-endian bytes) to unit length.

    Raises ProviderBrokenAnswer when they are not numbers, not finite, all zero or not `dims` many.
    """
    # The statement waits for a thread that is importing numpy right now; the entry in `sys.modules` is there
    # before the module is whole.
    return _scaled(values, dims, load_numpy() if "numpy" in sys.modules else None)


def unit_vectors(rows: Sequence[Values], *, dims: int | None) -> list[bytes]:
    """Do as `unit_vector` for every row; all rows must have the same number of dimensions."""
    if len(rows) >= NUMPY_WORTH_ROWS and (made := _made_unit(rows, dims)):
        return made
    vectors: list[bytes] = []
    for row in rows:
        vectors.append(unit_vector(row, dims=dims))
        dims = len(vectors[0]) // FLOAT_BYTES
    return vectors


def _made_unit(rows: Sequence[Values], dims: int | None) -> list[bytes]:
    """Scale rows of bytes at once; none where something is wrong with one of them.

    Most models make unit vectors. A row of 1,536 numbers at a time takes 6 us, here 1, and 3 if it is scaled.
    """
    numpy = load_numpy()
    made = [row for row in rows if isinstance(row, bytes)]
    size = FLOAT_BYTES * dims if dims else len(made[0]) if made else 0
    if numpy is None or len(made) < len(rows) or not size or size % FLOAT_BYTES:
        return []
    if any(len(row) != size for row in made):
        return []
    numbers = numpy.frombuffer(b"".join(made), "<f4").reshape(len(made), -1)
    lengths = numpy.sqrt(numpy.einsum("ij,ij->i", numbers, numbers, dtype=numpy.float64))
    if not bool((numpy.isfinite(lengths) & (lengths >= MIN_LENGTH)).all()):
        return []
    for index in numpy.flatnonzero(abs(lengths - 1.0) > UNIT_TOLERANCE).tolist():
        made[index] = (numbers[index] / lengths[index]).astype("<f4").tobytes()
    return made


def load_numpy() -> ModuleType | None:
    """Load numpy, if it is there: worth it before many vectors come one by one."""
    return None if lack("numpy") else sys.modules["numpy"]


def _scaled(values: Values, dims: int | None, numpy: ModuleType | None) -> bytes:
    numbers = _numbers(values)
    if not numbers:
        raise ProviderBrokenAnswer("a vector is empty")
    if dims is not None and len(numbers) != dims:
        raise ProviderBrokenAnswer(
            f"a vector has {len(numbers)} dimensions; expected {dims}",
            hint="if the server changed its model: memline index --re-embed",
        )
    if numpy is not None:
        wide = numpy.array(numbers, dtype=numpy.float64)
        with numpy.errstate(over="ignore", invalid="ignore"):
            length = math.sqrt(float(numpy.dot(wide, wide)))
    else:
        try:
            length = math.sqrt(sum([x * x for x in numbers]))
        except OverflowError:
            length = math.inf
    if not math.isfinite(length):
        raise ProviderBrokenAnswer("a vector is not finite (NaN or infinity)")
    if length < MIN_LENGTH:
        raise ProviderBrokenAnswer("a vector is zero")
    if abs(length - 1.0) <= UNIT_TOLERANCE:
        unit = array("f", numbers)
    elif numpy is not None:
        unit = array("f", (wide / length).astype("f4").tobytes())
    else:
        unit = array("f", [x / length for x in numbers])
    if sys.byteorder == "big":
        unit.byteswap()
    return unit.tobytes()


def _numbers(values: Values) -> array[float]:
    """Return the numbers: of bytes as float32, of anything else as doubles."""
    if not isinstance(values, bytes):
        try:
            return array("d", values)
        except (TypeError, OverflowError) as error:
            raise ProviderBrokenAnswer(f"a vector holds something that is not a number: {error}") from None
    if len(values) % FLOAT_BYTES:
        raise ProviderBrokenAnswer(f"a vector has {len(values)} bytes; float32 needs a multiple of 4")
    numbers = array("f", values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
