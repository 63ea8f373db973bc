"""Compare the vector of a question with those of the chunks.

    SqliteVec     the rows, by sqlite-vec: one-shot commands (numpy alone costs 110 ms of CPU to import)
    NumpyMatrix   a matrix in memory: long-lived processes, and wherever the extension is missing

Of many vectors those that are nearest by their signs are compared exactly, by both. Filters come before the
best are chosen: the third best note of a folder may be the thousandth of all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from memline.shared.index import driver, signs
from memline.shared.index.driver import json_ids
from memline.shared.index.identities import IdentityRow
from memline.shared.packages import lack
from memline.shared.sources.paths import MEMORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.index.matrix import VectorMatrix

#: Bytes of vectors that a process keeps whole: 20,000 of 1,536. Of more it keeps the signs.
FEW_FLOATS = 120_000_000

#: Vectors that are nearest by their signs and are compared exactly.
NEAREST = 2_000

_IN_FILES = (
    "SELECT vectors.id FROM chunks CROSS JOIN vectors"
    " ON vectors.identity_id = ? AND vectors.text_hash = chunks.text_hash"
    " WHERE chunks.file_id IN (SELECT value FROM json_each(?))"
)
_COSINES = (
    "SELECT id, 1 - vec_distance_cosine(embedding, ?) AS cosine FROM vectors"
    " WHERE identity_id = ? AND state = 'ready' AND active = 1 AND length(embedding) = ?"
)
_GIVEN = " AND id IN (SELECT value FROM json_each(?))"
_BEST = " ORDER BY cosine DESC, id LIMIT ?"
# By what `signs.of_question` says.
_BY_SIGNS = (
    "SELECT vector_id FROM vector_signs WHERE identity_id = ? AND signs IS NOT NULL{}"
    " ORDER BY length * (? + ? * vec_distance_hamming(vec_bit(signs), vec_bit(?)) + ? * length) DESC LIMIT ?"
)
_UNSIGNED = "SELECT vector_id FROM vector_signs WHERE identity_id = ? AND signs IS NULL"
# CROSS JOIN: the few rows that are given first, not all vectors of the identity (300 ms at 10,000).
_CHUNKS_OF_VECTORS = (
    "SELECT chunks.id, vectors.id FROM vectors CROSS JOIN chunks ON chunks.text_hash = vectors.text_hash"
    " WHERE vectors.id IN (SELECT value FROM json_each(?1))"
    " AND (?2 IS NULL OR chunks.file_id IN (SELECT value FROM json_each(?2)))"
)
_VECTORS_OF_CHUNKS = (
    "SELECT chunks.id, vectors.id FROM chunks CROSS JOIN vectors"
    " ON vectors.identity_id = ? AND vectors.text_hash = chunks.text_hash"
    " WHERE chunks.id IN (SELECT value FROM json_each(?))"
)
_BEGINNINGS = (
    "SELECT chunks.id FROM chunks CROSS JOIN files ON files.id = file_id AND source = ?"
    " WHERE ordinal = 0 AND chunks.id IN (SELECT value FROM json_each(?))"
)

#: (vectors.id, cosine), best first.
Scored = list[tuple[int, float]]


class SqliteVec:
    """Have sqlite-vec compare the rows of an identity with the question."""

    def __init__(self, connection: Connection, identity_id: int, query: bytes) -> None:
        self._connection = connection
        self._values = (query, identity_id, len(query))
        self._identity_id = identity_id

    def top(self, limit: int, files: str | None) -> Scored:
        """Return the best vectors; `files` is a JSON array of file ids to stay in, None for all."""
        within = "" if files is None else f" AND id IN ({_IN_FILES})"
        only = () if files is None else (self._identity_id, files)
        query, connection = self._values[0], self._connection
        centre = signs.read_centre(connection, self._identity_id)
        if not centre:
            return connection.execute(_COSINES + within + _BEST, (*self._values, *only, limit)).fetchall()
        question, (by_length, by_bit, by_square) = signs.of_question(query, centre)
        aim = (self._identity_id, *only, by_length, by_bit, question, by_square, max(NEAREST, 5 * limit))
        near = connection.execute(_BY_SIGNS.format(within.replace(" id", " vector_id")), aim).fetchall()
        # What has no signs yet is compared in any case.
        near += connection.execute(_UNSIGNED, (self._identity_id,)).fetchall()
        ids = json_ids(row for (row,) in near)
        return connection.execute(
            _COSINES + _GIVEN + within + _BEST, (*self._values, ids, *only, limit)
        ).fetchall()

    def cosines(self, vector_ids: Iterable[int]) -> dict[int, float]:
        """Return vectors.id -> cosine, for those of `vector_ids` that are active."""
        return dict(
            self._connection.execute(_COSINES + _GIVEN, (*self._values, json_ids(vector_ids))).fetchall()
        )


class NumpyMatrix:
    """Multiply the matrix in memory with the question."""

    def __init__(self, connection: Connection, matrix: VectorMatrix, query: bytes) -> None:
        self._connection = connection
        self._identity_id = matrix.identity_id
        self._scores = matrix.search(query)

    def top(self, limit: int, files: str | None) -> Scored:
        if files is None:
            return self._scores.top(limit)
        rows = self._connection.execute(_IN_FILES, (self._identity_id, files))
        return self._scores.top(limit, (row[0] for row in rows))

    def cosines(self, vector_ids: Iterable[int]) -> dict[int, float]:
        return self._scores.of(vector_ids)


#: One question compared with the active vectors of an identity.
VectorBackend = SqliteVec | NumpyMatrix


class Backends:
    """Chooses how a process compares vectors, and keeps its matrix."""

    def __init__(self, *, long_lived: bool, vec_enabled: bool, extension_path: str) -> None:
        self._long_lived, self._vec_enabled, self._extension_path = long_lived, vec_enabled, extension_path
        #: Why sqlite-vec is not used; empty while it is, or was not needed yet.
        self.vec_error = ""
        self._loaded_into: Connection | None = None
        self._matrix: VectorMatrix | None = None

    def choose(self, connection: Connection, active: IdentityRow, query: bytes) -> VectorBackend | None:
        """Return what compares `query` with the vectors of `active`; None when no library is installed."""
        if self._long_lived and (matrix := self._numpy(connection, active)):
            return NumpyMatrix(connection, matrix, query)
        if self._loaded_into is not connection:
            self.vec_error = "store.vector.enabled is off"
            if self._vec_enabled:
                self.vec_error = driver.load_vec(connection, self._extension_path)
            self._loaded_into = connection
        if not self.vec_error:
            return SqliteVec(connection, active.id, query)
        fallback = self._numpy(connection, active)
        return NumpyMatrix(connection, fallback, query) if fallback else None

    def _numpy(self, connection: Connection, active: IdentityRow) -> VectorMatrix | None:
        # The product is bound by memory, not by arithmetic. OpenBLAS's threads spin while they wait for each
        # other: 20 ms of CPU instead of 8 for a question at 10,000 vectors with another process at work.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if lack("numpy"):
            return None
        from memline.shared.index.matrix import SignMatrix, VectorMatrix  # imports numpy: 110 ms

        key = active.id, active.vector_dims
        matrix = self._matrix
        if matrix is not None and (matrix.identity_id, matrix.dims) != key:
            matrix = None
        count = signs.count(connection, active.id) if matrix is None else len(matrix)
        is_large = 4 * active.vector_dims * count > FEW_FLOATS
        centre = signs.read_centre(connection, active.id) if is_large else None
        if centre:
            if not isinstance(matrix, SignMatrix) or matrix.centre != centre:
                matrix = SignMatrix(*key, centre)
        elif matrix is None or isinstance(matrix, SignMatrix):
            matrix = VectorMatrix(*key)
        self._matrix = matrix
        matrix.refresh(connection)
        return matrix


def nearest(
    connection: Connection, backend: VectorBackend, files: str | None, limit: int
) -> dict[int, float]:
    """Return chunk id -> cosine of the chunks nearest to the question, best first."""
    cosine_of = dict(backend.top(limit, files))
    rows = connection.execute(_CHUNKS_OF_VECTORS, (json_ids(cosine_of), files))
    # One text may be in many files: each is a chunk of its own, with the same vector.
    hits = [(chunk_id, cosine_of[vector_id]) for chunk_id, vector_id in rows]
    return dict(sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:limit])


def vectors_of(connection: Connection, identity_id: int, chunk_ids: Collection[int]) -> dict[int, int]:
    """Return chunk id -> vectors.id, for chunks whose text has a row for its vector."""
    return dict(connection.execute(_VECTORS_OF_CHUNKS, (identity_id, json_ids(chunk_ids))).fetchall())


def beginnings(connection: Connection, chunk_ids: Collection[int]) -> set[int]:
    """Return which of some chunks are the first of a note."""
    return {row for (row,) in connection.execute(_BEGINNINGS, (MEMORY, json_ids(chunk_ids)))}
