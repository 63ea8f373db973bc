"""Vectors are float32, little-endian, of unit length; anything without a direction is refused."""

import math
import random
import struct
import sys

import pytest

from memline.shared.embedders.vector_checks import unit_vector, unit_vectors
from memline.shared.errors import ProviderBrokenAnswer
from tests.support.process import python


@pytest.fixture(params=["numpy", "array"])
def way(request, monkeypatch):
    """Both ways of computing."""
    if request.param == "array":
        monkeypatch.setitem(sys.modules, "numpy", None)
    else:
        pytest.importorskip("numpy")


def floats(vector):
    return [number for (number,) in struct.iter_unpack("<f", vector)]


@pytest.mark.usefixtures("way")
def test_numbers_become_a_unit_vector():
    vector = unit_vector([3.0, 4.0], dims=2)

    assert floats(vector) == pytest.approx([0.6, 0.8])


@pytest.mark.usefixtures("way")
def test_a_unit_vector_passes_unchanged():
    once = unit_vector([random.Random(1).gauss(0, 1) for _ in range(1536)], dims=1536)

    assert unit_vector(once, dims=1536) == once


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "empty"),
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
def test_what_is_no_direction_is_a_broken_answer(values, reason):
    with pytest.raises(ProviderBrokenAnswer, match=reason):
        unit_vector(values, dims=2 if len(values) else None)


@pytest.mark.usefixtures("way")
def test_vectors_of_different_lengths_are_a_broken_answer():
    with pytest.raises(ProviderBrokenAnswer, match="expected 2"):
        unit_vectors([[1.0, 0.0]] * 9 + [[1.0]], dims=None)


@pytest.mark.usefixtures("way")
def test_rows_that_have_unit_length_already_are_passed_on_and_no_others():
    source = random.Random(3)
    rows = [unit_vector([source.gauss(0, 1) for _ in range(64)], dims=64) for _ in range(9)]
    longer = struct.pack("<64f", *([2.0] + [0.0] * 63))

    assert unit_vectors(rows, dims=None) == rows
    assert floats(unit_vectors([*rows, longer], dims=64)[-1])[0] == 1
    for odd, reason in ((struct.pack("<64f", *[math.nan] * 64), "not finite"), (rows[0][:-4], "expected 64")):
        with pytest.raises(ProviderBrokenAnswer, match=reason):
            unit_vectors([*rows, odd], dims=None)
    with pytest.raises(ProviderBrokenAnswer, match="expected 32"):
        unit_vectors(rows, dims=32)
    with pytest.raises(ProviderBrokenAnswer, match="empty"):
        unit_vectors([b""] * 9, dims=None)


def test_a_vector_that_comes_while_another_thread_imports_numpy_waits_for_it():
    script = """
import sys, threading, time
from importlib.abc import MetaPathFinder
from memline.shared.embedders.vector_checks import unit_vector

class Slow(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("numpy.") and not half.is_set():
            half.set()
            time.sleep(0.2)

half = threading.Event()
sys.meta_path.insert(0, Slow())
other = threading.Thread(target=__import__, args=("numpy",))
other.start()
half.wait()
assert unit_vector([3.0, 4.0], dims=2)
other.join()
"""

    ran = python(script)

    assert ran.status == 0, ran.stderr
