"""Keep a bit a dimension of each vector of a large identity, to choose the few that are compared exactly.

    bits(v) = the signs of v - centre

`centre` is the mean of the first vectors: models put all vectors near each other, and without it most bits
would be the same everywhere. A question of few words may have little in common with the centre, so its bits
are those of what it has beside the direction of the centre.
"""

from __future__ import annotations

from array import array
from operator import mul
from sqlite3 import Connection

from memline.shared.index import identities
from memline.shared.index.driver import scalar, transaction
from memline.shared.packages import lack

#: Bytes of vectors up to which all are compared exactly: 20,000 of 1,536 dimensions.
FEW_BYTES = 120_000_000

#: Vectors that are nearest by their bits and are compared exactly, at least, and bits of these: the fewer
#: dimensions, the less a bit of each says. Of 200,000 of 384 the best 4,600 have .98 of the ten nearest.
NEAREST, NEAREST_BITS = 2_000, 2_400_000

#: Vectors whose bits are made at a time; fewer are left, and compared exactly.
SLICE_ROWS = 1_000

_READY = "SELECT {} FROM vectors WHERE identity_id = ? AND active = 1 AND state = 'ready'"
_MISSING = (
    "SELECT vector_id, embedding FROM vector_bits JOIN vectors ON vectors.id = vector_id"
    " WHERE vector_bits.identity_id = ? AND bits IS NULL LIMIT ?"
)


def depth(dims: int, limit: int) -> int:
    """Return how many vectors are compared exactly for the `limit` nearest."""
    return max(NEAREST, NEAREST_BITS // dims, 5 * limit)


def centre_of(connection: Connection, identity_id: int) -> bytes | None:
    """Return what the bits of an identity are taken to, float32; None for one that has no bits."""
    centre: bytes | None = scalar(connection, "SELECT centre FROM identities WHERE id = ?", identity_id)
    return centre


def make_searched(connection: Connection) -> None:
    """Make bits of the vectors that are searched, and of those that will be, in short transactions."""
    searched = [row for row in (identities.active(connection), identities.target(connection)) if row]
    for identity_id, dims in {(row.id, row.vector_dims) for row in searched if row.vector_dims}:
        make(connection, identity_id, dims)


def make(connection: Connection, identity_id: int, dims: int, few_bytes: int = FEW_BYTES) -> None:
    """Make the bits of an identity that are missing, once its vectors take more than `few_bytes`."""
    has_centre = centre_of(connection, identity_id) is not None
    many = f"{_MISSING} OFFSET {SLICE_ROWS - 1}" if has_centre else f"{_READY.format(1)} LIMIT 1 OFFSET ?"
    parameters = (identity_id, 1 if has_centre else few_bytes // (4 * dims))
    if scalar(connection, many, *parameters) is None or lack("numpy"):
        return
    # 110 ms, for those who have so many alone.
    import numpy as np

    if not has_centre:
        first = connection.execute(f"{_READY.format('embedding')} LIMIT ?", (identity_id, SLICE_ROWS))
        rows = np.frombuffer(b"".join(row for (row,) in first), "<f4").reshape(-1, dims)
        with transaction(connection):
            # Of two processes that do this at once the first counts: bits of the two cannot be compared.
            statement = "UPDATE identities SET centre = ? WHERE id = ? AND centre IS NULL"
            connection.execute(statement, (rows.mean(axis=0).astype("<f4").tobytes(), identity_id))
            connection.execute(
                "INSERT OR IGNORE INTO vector_bits (vector_id, identity_id)"
                " SELECT id, identity_id FROM vectors WHERE identity_id = ? AND state = 'ready'",
                (identity_id,),
            )
    centre = np.frombuffer(centre_of(connection, identity_id) or b"", "<f4")
    is_left = True
    while is_left:
        with transaction(connection):
            missing = connection.execute(_MISSING, (identity_id, SLICE_ROWS)).fetchall()
            vectors = np.frombuffer(b"".join(row for _, row in missing), "<f4").reshape(-1, dims)
            made = np.packbits(vectors > centre, axis=1)
            connection.executemany(
                "UPDATE vector_bits SET bits = ? WHERE vector_id = ?",
                ((each.tobytes(), row_id) for each, (row_id, _) in zip(made, missing, strict=True)),
            )
        is_left = len(missing) == SLICE_ROWS


def of_question(question: bytes, centre: bytes) -> bytes:
    """Return the bits of the vector of a question (float32)."""
    mine, theirs = array("f", question), array("f", centre)
    share = sum(map(mul, mine, theirs)) / (sum(map(mul, theirs, theirs)) or 1.0)
    bits = "".join("1" if a > share * b else "0" for a, b in zip(mine, theirs, strict=True))
    return int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")
