"""Keep the signs of active vectors: a bit a dimension, to choose the few of many that are compared exactly.

    signs(v) = the signs of R (v - centre)

`centre` is the mean of the first vectors of an identity, kept with it. R turns the space, so that every bit
says as much as any other: twice the signs of some axes change, blocks of up to 64 are mixed (Hadamard), and
the blocks are interleaved. The fewer bits two vectors differ in, the nearer they are.

How many of the nearest by signs hold the ten nearest is measured on a sample of the index, and measured again
when it has doubled. Where that would be too many, vectors are compared exactly, one and all.

numpy is imported late: a one-shot search needs the signs of its question alone.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memline.shared.digests import shake_256
from memline.shared.index.driver import scalar, snapshot, transaction
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

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

#: Vectors of the sample that is measured, and how many of them ask.
SAMPLE_ROWS, SAMPLE_QUESTIONS = 8_192, 64

#: Share of the ten nearest that must be among those compared exactly.
RECALL = 0.99

#: Times as many are compared exactly as the sample needed: a question is not one of the vectors.
MARGIN = 1.5

#: The fewest that are compared exactly, and the largest share: beyond, reading them all is as fast.
MIN_DEPTH, MAX_SHARE = 1_000, 1 / 8

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
_EVERY_NTH = (
    "SELECT vector_id, embedding, made.signs FROM (SELECT vector_id AS of_place, row_number()"
    " OVER (ORDER BY vector_id) AS place FROM vector_signs WHERE identity_id = ?)"
    " JOIN vector_signs AS made ON made.vector_id = of_place JOIN vectors ON vectors.id = of_place"
    " WHERE place % ? = 0 AND made.signs IS NOT NULL AND length(embedding) = ?"
)


#: What is kept of a check: names of fields of `Signs`.
_CHECKED = ("rows", "depth", "growth", "of")


@value
class Signs:
    """What is known of the signs of an identity."""

    #: Mean of its first vectors, float32.
    centre: bytes
    #: Rows of the sample that was measured; of so many vectors at least.
    rows: int = 0
    #: How many of the sample had to be compared exactly; 0 while nothing was measured.
    depth: int = 0
    #: How that grows: with this power of the number of vectors.
    growth: float = 1.0
    #: Active vectors when it was measured.
    of: int = 0

    def depth_for(self, count: int, limit: int) -> int:
        """Return how many of `count` vectors to compare exactly for the best `limit`; 0: all."""
        if not self.depth:
            return 0
        needed = math.ceil(MARGIN * self.depth * float(max(1.0, count / self.rows) ** self.growth))
        needed = max(needed, least_read(limit))
        return 0 if needed > max(MAX_SHARE * count, MIN_DEPTH) else needed


def least_read(limit: int) -> int:
    """Return how many vectors are compared exactly at least, where there are as many."""
    return max(MIN_DEPTH, 5 * limit)


def read(connection: Connection, identity_id: int) -> Signs | None:
    """Return what is known of the signs of an identity; None while there are none."""
    query = "SELECT centre, signs_check FROM identities WHERE id = ? AND centre IS NOT NULL"
    row = connection.execute(query, (identity_id,)).fetchone()
    if row is None:
        return None
    check = json.loads(row[1] or "{}")
    return Signs(centre=row[0], **{name: check[name] for name in _CHECKED if name in check})


def count(connection: Connection, identity_id: int) -> int:
    """Count the active vectors of an identity."""
    query = "SELECT count(*) FROM vectors WHERE identity_id = ? AND active = 1 AND state = 'ready'"
    return int(scalar(connection, query, identity_id))


def forget(connection: Connection, identity_id: int) -> None:
    """Drop the centre of an identity whose vectors are gone, inside the caller's transaction."""
    statement = "UPDATE identities SET centre = NULL, signs_check = NULL WHERE id = ?"
    connection.execute(statement, (identity_id,))


def make(connection: Connection, identity_id: int, dims: int) -> None:
    """Make signs that are missing, in short transactions, once there are enough of them; check them."""
    known = read(connection, identity_id)
    enough = SLICE_ROWS if known else MIN_ROWS
    if not dims or scalar(connection, f"{_MISSING} LIMIT 1 OFFSET {enough - 1}", identity_id) is None:
        return
    try:
        import numpy as np
    except ImportError:
        return
    if known is None:
        total, found = np.zeros(dims), 0
        for _, embedding in connection.execute(_FIRST, (identity_id, 4 * dims, MIN_ROWS)):
            total += np.frombuffer(embedding, "<f4")
            found += 1
        if not found:
            return
        centre = (total / found).astype("<f4")
        with transaction(connection):
            # Of two processes that do this at once the first counts: signs of the two cannot be compared.
            statement = "UPDATE identities SET centre = ? WHERE id = ? AND centre IS NULL"
            connection.execute(statement, (centre.tobytes(), identity_id))
        known = read(connection, identity_id)
        assert known is not None
    for _ in range(MAX_SLICES):
        with transaction(connection):
            rows = connection.execute(_FIRST, (identity_id, 4 * dims, SLICE_ROWS)).fetchall()
            if not rows:
                break
            for first in range(0, len(rows), _AT_ONCE):
                part = rows[first : first + _AT_ONCE]
                made = of_rows(_floats([row[1] for row in part]), known.centre)
                connection.executemany(
                    "UPDATE vector_signs SET signs = ? WHERE vector_id = ?",
                    ((signs.tobytes(), row[0]) for signs, row in zip(made, part, strict=True)),
                )
    active = count(connection, identity_id)
    if active >= 2 * known.of:
        _check(connection, identity_id, dims, active)


def _check(connection: Connection, identity_id: int, dims: int, active: int) -> None:
    """Measure on a sample how many have to be compared exactly, and keep it with the identity.

    The sample is read twice, some of it first and then all of it by few rows: 8,192 of 1,536 take 50 MB.
    """
    import numpy as np

    every = -(-active // SAMPLE_ROWS)
    step = max(1, active // every // SAMPLE_QUESTIONS)
    with snapshot(connection):
        asking = connection.execute(_EVERY_NTH, (identity_id, every * step, 4 * dims)).fetchall()
        if not asking:
            return
        ids, questions = np.array([row[0] for row in asking]), _floats([row[1] for row in asking])
        cosines, made = [], []
        sample = connection.execute(_EVERY_NTH, (identity_id, every, 4 * dims))
        while rows := sample.fetchmany(_AT_ONCE):
            part = _floats([row[1] for row in rows]) @ questions.T
            # A vector does not find itself.
            part[np.array([row[0] for row in rows])[:, None] == ids] = -2
            cosines.append(part)
            made += [row[2] for row in rows]
    if len(made) < 8 * SAMPLE_QUESTIONS:
        return
    near, signs, own = np.concatenate(cosines), _words(made), _words([row[2] for row in asking])
    few, whole = _needed_depth(near[::8], signs[::8], own), _needed_depth(near, signs, own)
    growth = round(min(1.0, max(0.25, math.log(whole / few, 8))), 3)
    check = {"rows": len(near), "depth": whole, "growth": growth, "of": active}
    with transaction(connection):
        connection.execute(
            "UPDATE identities SET signs_check = ? WHERE id = ?", (json.dumps(check), identity_id)
        )


def _needed_depth(cosines: Floats, signs: Words, asking: Words) -> int:
    """Return how many of the nearest by signs hold RECALL of the ten nearest.

    `cosines`: a column for each that asks, a row for each of `signs`; -2 for one that asks itself.
    """
    import numpy as np

    ranks: list[int] = []
    for near, own in zip(cosines.T, asking, strict=True):
        nearest = np.argpartition(-near, 10)[:10]
        away = distances(signs, own)
        away[near < -1.5] = np.iinfo(np.uint16).max
        # Of equals all: any of them may be left out.
        ranks += (away[None, :] <= away[nearest][:, None]).sum(axis=1).tolist()
    return sorted(ranks)[math.ceil(RECALL * len(ranks)) - 1]


def of_rows(rows: Floats, centre: bytes) -> Bytes:
    """Return the signs of vectors, a row each."""
    import numpy as np

    return np.packbits(_turned(rows, centre) > 0, axis=1)


def turned_question(question: bytes, centre: bytes) -> Floats:
    """Turn one vector (float32) as those are whose signs are kept."""
    import numpy as np

    turned: Floats = _turned(np.frombuffer(question, "<f4")[None], centre)[0]
    return turned


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


def _turned(rows: Floats, centre: bytes) -> Floats:
    import numpy as np

    count, dims = rows.shape
    block = _block(dims)
    mix = np.ones((1, 1), np.float32)
    while len(mix) < block:
        mix = np.block([[mix, mix], [mix, -mix]])
    turned: Floats = rows - np.frombuffer(centre, "<f4")
    for flips in _flips(dims):
        turned *= np.array(flips, np.float32)
        turned = (turned.reshape(-1, block) @ mix).reshape(count, -1, block)
        turned = np.ascontiguousarray(turned.transpose(0, 2, 1)).reshape(count, dims)
    return turned


def words(signs: Bytes) -> Words:
    """Return signs as rows of 64-bit words, eight or a multiple of it, the last ones zero."""
    import numpy as np

    padded = np.zeros((len(signs), -(-signs.shape[1] // 64) * 64), np.uint8)
    padded[:, : signs.shape[1]] = signs
    return padded.view(np.uint64)


def _words(made: list[bytes]) -> Words:
    import numpy as np

    return words(np.frombuffer(b"".join(made), np.uint8).reshape(len(made), -1))


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


def of_question(question: bytes, centre: bytes) -> bytes:
    """Return the signs of one vector (float32), without numpy."""
    turned = [mine - theirs for mine, theirs in zip(_array(question), _array(centre), strict=True)]
    dims = len(turned)
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
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


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
