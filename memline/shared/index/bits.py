"""Keep a bit a dimension of each vector of a large identity, to choose the few that are compared exactly.

    bits(v) = the signs of v - centre

`centre` is the mean of the first vectors. Models put all vectors near each other: without the centre most of
the bits would be the same everywhere. A question of few words may have little in common with the centre, so
its bits are those of what it has beside the direction of the centre.

numpy is imported late: 110 ms, and a one-shot search needs the bits of its question alone.
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

_READY = "identity_id = ? AND active = 1 AND state = 'ready'"
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
    return centre or None


def make_searched(connection: Connection) -> None:
    """Make bits of the vectors that are searched, and of those that will be, in short transactions."""
    searched = [row for row in (identities.active(connection), identities.target(connection)) if row]
    for identity_id, dims in {(row.id, row.vector_dims) for row in searched}:
        make(connection, identity_id, dims)


def make(connection: Connection, identity_id: int, dims: int, few_bytes: int = FEW_BYTES) -> None:
    """Make the bits of an identity that are missing, once its vectors take more than `few_bytes`."""
    centre = centre_of(connection, identity_id)
    if centre is None:
        offset = few_bytes // (4 * dims) if dims else 0
        query = f"SELECT 1 FROM vectors WHERE {_READY} LIMIT 1 OFFSET ?"
        if not dims or scalar(connection, query, identity_id, offset) is None:
            return
    elif scalar(connection, f"{_MISSING} OFFSET ?", identity_id, 1, SLICE_ROWS - 1) is None:
        return
    if lack("numpy"):
        return
    import numpy as np

    if centre is None:
        first = f"SELECT embedding FROM vectors WHERE {_READY} LIMIT ?"
        rows = [row for (row,) in connection.execute(first, (identity_id, SLICE_ROWS))]
        mean = np.frombuffer(b"".join(rows), "<f4").reshape(len(rows), dims).mean(axis=0)
        with transaction(connection):
            # Of two processes that do this at once the first counts: bits of the two cannot be compared.
            statement = "UPDATE identities SET centre = ? WHERE id = ? AND centre IS NULL"
            connection.execute(statement, (mean.astype("<f4").tobytes(), identity_id))
            connection.execute(
                "INSERT OR IGNORE INTO vector_bits (vector_id, identity_id)"
                " SELECT id, identity_id FROM vectors WHERE identity_id = ? AND state = 'ready'",
                (identity_id,),
            )
        centre = centre_of(connection, identity_id)
    subtracted = np.frombuffer(centre or b"", "<f4")
    while True:
        with transaction(connection):
            missing = connection.execute(_MISSING, (identity_id, SLICE_ROWS)).fetchall()
            vectors = np.frombuffer(b"".join(row[1] for row in missing), "<f4").reshape(-1, dims)
            made = np.packbits(vectors > subtracted, axis=1)
            connection.executemany(
                "UPDATE vector_bits SET bits = ? WHERE vector_id = ?",
                ((each.tobytes(), row[0]) for each, row in zip(made, missing, strict=True)),
            )
        if len(missing) < SLICE_ROWS:
            return


def forget(connection: Connection, identity_id: int) -> None:
    """Drop the centre of an identity whose vectors are gone, inside the caller's transaction."""
    connection.execute("UPDATE identities SET centre = NULL WHERE id = ?", (identity_id,))


def of_question(question: bytes, centre: bytes) -> bytes:
    """Return the bits of the vector of a question (float32)."""
    mine, theirs = _floats(question), _floats(centre)
    share = sum(map(mul, mine, theirs)) / (sum(map(mul, theirs, theirs)) or 1.0)
    bits = "".join("1" if a > share * b else "0" for a, b in zip(mine, theirs, strict=True))
    return int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")


def _floats(vector: bytes) -> array[float]:
    floats = array("f")
    floats.frombytes(vector)
    return floats
