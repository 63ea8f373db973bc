"""Keep a bit a dimension of each vector of a large identity, to choose the few that are compared exactly.

    bits(v) = the signs of v - centre

`centre` is the mean of the first vectors: models put all vectors near each other, and without it most bits
would be the same everywhere. A question of few words may have little in common with the centre, so its bits
are those of what it has beside the direction of the centre.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import mul
from sqlite3 import Connection

from memline.shared.index.driver import scalar, transaction

#: Bytes of vectors up to which all are compared exactly: 20,000 of 1,536 dimensions.
FEW_BYTES = 120_000_000

#: Vectors that are nearest by their bits and are compared exactly, at least, and bits of these: the fewer
#: dimensions, the less a bit of each says. Of 200,000 of 384 the best 4,600 have .98 of the ten nearest.
NEAREST, NEAREST_BITS = 2_000, 2_400_000

#: Vectors that the centre is the mean of, and that are read at a time.
SLICE_ROWS = 1_000

# By the index of states, which begins so.
_READY = "FROM vectors WHERE identity_id = ? AND active IN (0, 1) AND state = 'ready'"


def depth(dims: int, limit: int) -> int:
    """Return how many vectors are compared exactly for the `limit` nearest."""
    return max(NEAREST, NEAREST_BITS // dims, 5 * limit)


def centre_of(connection: Connection, identity_id: int) -> bytes | None:
    """Return what the bits of an identity are taken to, float32; None for one that has no bits."""
    centre: bytes | None = scalar(connection, "SELECT centre FROM identities WHERE id = ?", identity_id)
    return centre


def store(connection: Connection, identity_id: int, rows: Sequence[tuple[int, bytes]]) -> None:
    """Store the bits of (vectors.id, vector) where the identity has bits, inside the caller's transaction."""
    if rows and (centre := centre_of(connection, identity_id)):
        reference = array("f", centre)
        bits = ((row_id, identity_id, _bits(array("f", vector), reference)) for row_id, vector in rows)
        put = "INSERT OR REPLACE INTO vector_bits (vector_id, identity_id, bits) VALUES (?, ?, ?)"
        connection.executemany(put, bits)


def make(connection: Connection, identity_id: int, dims: int, few_bytes: int = FEW_BYTES) -> None:
    """Make the bits of all vectors of an identity, once they take more than `few_bytes`.

    In one transaction, once in the life of an identity (2 s for 30,000 vectors of 1,536), so that each vector
    of one with a centre has bits.
    """
    many = f"SELECT 1 {_READY} AND active = 1 LIMIT 1 OFFSET ?"
    if centre_of(connection, identity_id) or not scalar(
        connection, many, identity_id, few_bytes // (4 * dims)
    ):
        return
    with transaction(connection):
        # Cached ones as well: a chunk may need them again.
        rows = connection.execute(f"SELECT id, embedding {_READY}", (identity_id,))
        some = rows.fetchmany(SLICE_ROWS)
        columns = zip(*(array("f", vector) for _, vector in some), strict=True)
        centre = array("f", (sum(column) / len(column) for column in columns)).tobytes()
        connection.execute("UPDATE identities SET centre = ? WHERE id = ?", (centre, identity_id))
        while some:
            store(connection, identity_id, some)
            some = rows.fetchmany(SLICE_ROWS)


def of_question(question: bytes, centre: bytes) -> bytes:
    """Return the bits of the vector of a question (float32)."""
    mine, theirs = array("f", question), array("f", centre)
    share = sum(map(mul, mine, theirs)) / (sum(map(mul, theirs, theirs)) or 1.0)
    return _bits(mine, [share * each for each in theirs])


def _bits(vector: Sequence[float], reference: Sequence[float]) -> bytes:
    bits = "".join("1" if a > b else "0" for a, b in zip(vector, reference, strict=True))
    width = -(-len(bits) // 8)
    return int(bits.ljust(width * 8, "0"), 2).to_bytes(width, "big")
