"""Keep the signs of active vectors: a bit a dimension, to choose the few of many that are compared exactly.

    signs(v) = the signs of R (v - centre)

`centre` is the mean of the first vectors of an identity, kept with it. R turns the space, so that every bit
says as much as any other: twice the signs of some axes change, blocks of up to 64 are mixed (Hadamard), and
the blocks are interleaved. With the signs of a vector v stands its distance from the centre c, L = |v - c|.
Of a question q the part along the centre is taken apart, the rest is u, so that

    cos(q, v) = (q c) (1 + |c|^2 - L^2) / 2 |c|^2 + u (v - c)

The first part is exact; the second is estimated from the signs. A question of few words has nearly nothing in
common with a centre that holds the words of every text: without this its signs say hardly anything. Of
100,000 vectors of hashed words (1,536 dimensions) the ten nearest to such a question were among the nearest
15,000 by the signs of q - c, and are among the 3,000 nearest by those of u and the lengths; by u itself
(`Aim.weighed`) among 800.

numpy is imported late: a one-shot search needs the signs of its question alone.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import mul

from memline.shared.digests import shake_256
from memline.shared.index import identities
from memline.shared.index.driver import scalar, transaction
from memline.shared.packages import lack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection
    from typing import Any

    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float32]]
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Words = np.ndarray[Any, np.dtype[np.uint64]]
    Counts = np.ndarray[Any, np.dtype[np.uint16]]

#: Active vectors of an identity from which on signs are made: to compare fewer exactly takes 25 ms.
MIN_ROWS = 4_096

#: Vectors whose signs are made at a time; fewer are left, and compared exactly.
SLICE_ROWS = 1_000

#: Slices a call makes at most, so that a live edit never waits for a whole old index.
MAX_SLICES = 16

#: The fewest that are compared exactly.
MIN_DEPTH = 1_000

#: Of so many of the nearest vectors a search by signs is to miss hardly any.
TOP = 10

#: How many of those it may be expected to miss by the last estimate before the cosine; and by the one before
#: that where there are two: to weigh a row takes a fortieth of the time.
MISSED, MISSED_WEIGHED = 0.05, 0.01

#: By how much a cosine is off that was estimated exactly.
EXACT = 1e-9

#: Rows whose bits are counted at a time: what is counted stays in the cache of a core.
_SCANNED = 4_096

#: Bits of a number of the turned question in `nearness`: its signs are off by 60 %, four bits by 15 % more.
_QUESTION_BITS = 4

#: Axes that are mixed at once.
_BLOCK = 64

#: Vectors whose numbers are in memory at once, and what is made of them: 0.8 MB each time at 1,536.
_AT_ONCE = 128

_MISSING = "SELECT vector_id FROM vector_signs WHERE identity_id = ? AND signs IS NULL"
_FIRST = (
    "SELECT vector_id, embedding FROM vector_signs JOIN vectors ON vectors.id = vector_id"
    " WHERE vector_signs.identity_id = ? AND signs IS NULL AND length(embedding) = ? LIMIT ?"
)


def least_read(limit: int) -> int:
    """Return how many vectors are compared exactly at least, where there are as many."""
    return max(MIN_DEPTH, 5 * limit)


def read_centre(connection: Connection, identity_id: int) -> bytes | None:
    """Return what the signs of an identity are taken to, float32; None while there are none."""
    centre: bytes | None = scalar(connection, "SELECT centre FROM identities WHERE id = ?", identity_id)
    return centre or None


def count(connection: Connection, identity_id: int) -> int:
    """Count the active vectors of an identity."""
    query = "SELECT count(*) FROM vectors WHERE identity_id = ? AND active = 1 AND state = 'ready'"
    return int(scalar(connection, query, identity_id))


def forget(connection: Connection, identity_id: int) -> None:
    """Drop the centre of an identity whose vectors are gone, inside the caller's transaction."""
    connection.execute("UPDATE identities SET centre = NULL WHERE id = ?", (identity_id,))


def make_searched(connection: Connection) -> None:
    """Make signs of the vectors that are searched, and of those that will be."""
    searched = [row for row in (identities.active(connection), identities.target(connection)) if row]
    for identity_id, dims in {(row.id, row.vector_dims) for row in searched}:
        make(connection, identity_id, dims)


def make(connection: Connection, identity_id: int, dims: int) -> None:
    """Make signs that are missing, in short transactions, once there are enough of them."""
    centre = read_centre(connection, identity_id)
    enough = SLICE_ROWS if centre else MIN_ROWS
    if not dims or scalar(connection, f"{_MISSING} LIMIT 1 OFFSET {enough - 1}", identity_id) is None:
        return
    if lack("numpy"):
        return
    import numpy as np

    if centre is None:
        total, found = np.zeros(dims), 0
        for _, embedding in connection.execute(_FIRST, (identity_id, 4 * dims, MIN_ROWS)):
            total += np.frombuffer(embedding, "<f4")
            found += 1
        if not found:
            return
        mean = (total / found).astype("<f4")
        with transaction(connection):
            # Of two processes that do this at once the first counts: signs of the two cannot be compared.
            statement = "UPDATE identities SET centre = ? WHERE id = ? AND centre IS NULL"
            connection.execute(statement, (mean.tobytes(), identity_id))
        centre = read_centre(connection, identity_id)
        assert centre is not None
    for _ in range(MAX_SLICES):
        with transaction(connection):
            rows = connection.execute(_FIRST, (identity_id, 4 * dims, SLICE_ROWS)).fetchall()
            if not rows:
                break
            for first in range(0, len(rows), _AT_ONCE):
                part = rows[first : first + _AT_ONCE]
                made, lengths = of_rows(_floats([row[1] for row in part]), centre)
                connection.executemany(
                    "UPDATE vector_signs SET signs = ?, length = ? WHERE vector_id = ?",
                    zip(map(bytes, made), lengths.tolist(), (row[0] for row in part), strict=True),
                )


def of_rows(rows: Floats, centre: bytes) -> tuple[Bytes, Floats]:
    """Return the signs of vectors, a row each, and their distances from the centre."""
    import numpy as np

    off = rows - np.frombuffer(centre, "<f4")
    return np.packbits(_turned(off) > 0, axis=1), np.sqrt(np.einsum("ij,ij->i", off, off))


def parted(question: Sequence[float], centre: Sequence[float]) -> tuple[list[float], float, float]:
    """Return what a question has beside the direction of the centre, its part along it, and |centre|."""
    length = math.hypot(*centre)
    if not length:
        return list(question), 0.0, 0.0
    along = sum(map(mul, question, centre)) / length
    share = along / length
    return [mine - share * theirs for mine, theirs in zip(question, centre, strict=True)], along, length


def chance(away: float) -> float:
    """Return how likely a normal deviate is above `away`."""
    return math.erfc(away / math.sqrt(2)) / 2


class Aim:
    """One question, turned as the vectors are whose signs are kept: estimates cosines."""

    def __init__(self, question: bytes, centre: bytes) -> None:
        import numpy as np

        beside, along, length = parted(_array(question), _array(centre))
        rows = np.array(beside, np.float32)[None]
        # It makes them longer by the root of a block, twice.
        self._turned = _turned(rows)[0] / _block(rows.shape[1])
        self._dims = rows.shape[1]
        self._beside = float(np.linalg.norm(rows))
        #: Of `_exact`: what the square of a length takes off.
        self._off = along / (2 * length) if length else 0.0
        self._most = along * (1 + length**2) / (2 * length) if length else 0.0
        self.signs = words(np.packbits(self._turned > 0)[None])

    def by_distance(self, differing: Counts, lengths: Floats) -> Floats:
        """Estimate cosines from the bits that differ: of two turned vectors an angle shows in as many."""
        import numpy as np

        half = np.float32(math.pi / 2)
        near: Floats = np.sin(half - differing * np.float32(math.pi / self._dims))
        near *= lengths * np.float32(self._beside)
        near += self._exact(lengths)
        return near

    def weighed(self, signs: Words, lengths: Floats) -> Floats:
        """Estimate cosines from the numbers of the question where a sign is set: says more, 0.15 us a row."""
        import numpy as np

        # The mean of |x| is sqrt(2 / pi) of the deviation of x.
        size = math.sqrt(math.pi / 2 / self._dims)
        near = 2 * nearness(signs, self._turned) - np.float32(self._turned.sum())
        near *= lengths * np.float32(size)
        near += self._exact(lengths)
        return near

    def _exact(self, lengths: Floats) -> Floats:
        import numpy as np

        return np.float32(self._most) - np.float32(self._off) * lengths * lengths


def nearness(signs: Words, turned: Floats) -> Floats:
    """Weigh the signs of each row by the turned question itself: says more than its signs, 0.15 us a row.

    Its numbers are rounded to a few bits. Then the sum of those where a sign is set is, bit by bit, a count
    of what both have.
    """
    import numpy as np

    least, most = float(turned.min()), float(turned.max())
    step = (most - least) / (2**_QUESTION_BITS - 1) or 1.0
    rounded = np.rint((turned - least) / step).astype(np.uint8)
    found = least * _ones(signs).astype(np.float32)
    for bit in range(_QUESTION_BITS):
        plane = words(np.packbits(rounded >> bit & 1)[None])
        found += np.float32(step * 2**bit) * _ones(signs, np.bitwise_and, plane)
    return found


def _turned(rows: Floats) -> Floats:
    import numpy as np

    count, dims = rows.shape
    block = _block(dims)
    mix = np.ones((1, 1), np.float32)
    while len(mix) < block:
        mix = np.block([[mix, mix], [mix, -mix]])
    turned = rows
    for flips in _flips(dims):
        turned = turned * np.array(flips, np.float32)
        turned = (turned.reshape(-1, block) @ mix).reshape(count, -1, block)
        turned = np.ascontiguousarray(turned.transpose(0, 2, 1)).reshape(count, dims)
    return turned


def words(signs: Bytes) -> Words:
    """Return signs as rows of 64-bit words, eight or a multiple of it, the last ones zero."""
    import numpy as np

    padded = np.zeros((len(signs), -(-signs.shape[1] // 64) * 64), np.uint8)
    padded[:, : signs.shape[1]] = signs
    return padded.view(np.uint64)


def distances(signs: Words, question: Words) -> Counts:
    """Count the bits in which each row differs from `question`: 23 ms for a million of 1,536."""
    import numpy as np

    return _ones(signs, np.bitwise_xor, question)


def _ones(signs: Words, combine: np.ufunc | None = None, other: Words | None = None) -> Counts:
    """Count the bits of each row that are set, after it was combined with the one row of `other`."""
    import numpy as np

    count, width = signs.shape
    size = min(count, _SCANNED)
    found, bits = np.empty(count, np.uint16), np.empty((size, width), np.uint8)
    combined = np.empty((size, width), np.uint64)
    # As many rows as there are to combine: numpy goes through arrays of one shape in one loop, and not row by
    # row, half of the time.
    others = signs[:0] if other is None else np.tile(other, (size, 1))
    low, eight = np.uint64(0x00FF_00FF_00FF_00FF), np.uint64(8)
    for first in range(0, count, _SCANNED):
        rows = signs[first : first + _SCANNED]
        here = len(rows)
        if combine is not None:
            rows = combine(rows, others[:here], out=combined[:here])
        ones = np.bitwise_count(rows, out=bits[:here]).view(np.uint64)
        # Eight counts in a word, none above 64: three such words may be added, then two counts are.
        total = np.zeros(here, np.uint64)
        for start in range(0, width // 8, 3):
            part = ones[:, start].copy()
            for column in range(start + 1, min(start + 3, width // 8)):
                part += ones[:, column]
            high = part >> eight
            part &= low
            high &= low
            total += part
            total += high
        # The four counts of a word, added in its highest.
        total *= np.uint64(0x0001_0001_0001_0001)
        total >>= np.uint64(48)
        found[first : first + here] = total
    return found


def of_question(question: bytes, centre: bytes) -> tuple[bytes, list[float]]:
    """Return the signs of one vector (float32), without numpy, and factors of

        cosine = a length + b length (bits that differ) + c length^2 (+ what is the same for all)

    for angles near 90 degrees, where a sine is its angle.
    """
    turned, along, length = parted(_array(question), _array(centre))
    beside = math.hypot(*turned)
    dims = len(turned)
    factors = [beside * math.pi / 2, -beside * math.pi / dims, -along / (2 * length) if length else 0.0]
    block = _block(dims)
    for flips in _flips(dims):
        turned = [flip * each for flip, each in zip(flips, turned, strict=True)]
        step = 1
        while step < block:
            turned = [
                turned[i ^ step] - turned[i] if i & step else turned[i] + turned[i ^ step]
                for i in range(dims)
            ]
            step *= 2
        turned = [each for first in range(block) for each in turned[first::block]]
    bits = "".join("1" if each > 0 else "0" for each in turned).ljust(-(-dims // 8) * 8, "0")
    return int(bits, 2).to_bytes(len(bits) // 8, "big"), factors


@lru_cache(maxsize=4)
def _flips(dims: int) -> tuple[tuple[int, ...], ...]:
    """Return the signs by which axes are multiplied in each of two rounds, the same everywhere."""

    # Here, because a search by keywords needs none: loading OpenSSL costs it 2.5 ms.
    def bits(name: bytes) -> Iterator[int]:
        for byte in shake_256(name, -(-dims // 8)):
            yield from (1 if byte >> place & 1 else -1 for place in range(8))

    return tuple(
        tuple(flip for flip, _ in zip(bits(name), range(dims), strict=False)) for name in (b"1", b"2")
    )


def _block(dims: int) -> int:
    """Return how many axes are mixed at once: a power of two that divides them."""
    return min(dims & -dims, _BLOCK)


def _array(vector: bytes) -> array[float]:
    floats = array("f")
    floats.frombytes(vector)
    return floats


def _floats(embeddings: list[bytes]) -> Floats:
    import numpy as np

    return np.frombuffer(b"".join(embeddings), "<f4").reshape(len(embeddings), -1)
