"""Vectors are float32, little-endian, of unit length; anything without a direction is refused."""

import math
import random
import struct

import pytest

from memline.shared.embedders.protocol import NUMPY_WORTH_ROWS, unit_vector, unit_vectors
from memline.shared.errors import ProviderBrokenAnswer


def floats(vector):
    return [number for (number,) in struct.iter_unpack("<f", vector)]


@pytest.mark.parametrize("count", [1, NUMPY_WORTH_ROWS])
def test_rows_become_unit_vectors_and_those_that_are_pass_unchanged(count):
    source = random.Random(1)
    rows = [unit_vector([source.gauss(0, 1) for _ in range(1536)], dims=1536) for _ in range(count)]
    longer = struct.pack("<1536f", *([2.0] + [0.0] * 1535))

    assert unit_vectors(rows, dims=None) == rows
    assert floats(unit_vectors([*rows, longer], dims=1536)[-1]) == [1.0] + [0.0] * 1535
    assert floats(unit_vector([3.0, 4.0], dims=2)) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("before", [0, NUMPY_WORTH_ROWS])
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "empty"),
        (b"", "empty"),
        ([0.0, 0.0], "zero"),
        ([math.nan, 1.0], "not finite"),
        ([math.inf, 1.0], "not finite"),
        ([1e300, 1e300], "not finite"),
        ([1.0], "1 dimensions; expected 2"),
        ([1.0, None], "not a number"),
        (["a", "b"], "not a number"),
        ([10**400, 1], "not a number"),
        (b"12345", "multiple of 4"),
        (struct.pack("<2f", math.nan, 1), "not finite"),
    ],
)
def test_what_is_no_direction_is_a_broken_answer(values, reason, before):
    with pytest.raises(ProviderBrokenAnswer, match=reason):
        unit_vectors([[1.0, 0.0]] * before + [values], dims=None if before else 2)
