"""Compare the vector of a question with the active vectors of an identity.

    SqliteVec     the rows, by sqlite-vec: one-shot commands (numpy alone costs 110 ms of CPU to import)
    NumpyMatrix   a cached matrix: long-lived processes, and wherever the extension is missing

Of many vectors those that are nearest by their signs (`shared.index.signs`) are compared, by both.

Both return the same hits. Each is made for one question. Filters come before the best are chosen: the third
best note of a folder may be the thousandth of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from memline.shared.index import signs

if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.index.matrix import VectorMatrix

#: (vectors.id, cosine), best first.
Scored = list[tuple[int, float]]

_IN_FILES = (
    "SELECT vectors.id FROM chunks CROSS JOIN vectors"
    " ON vectors.identity_id = ? AND vectors.text_hash = chunks.text_hash"
    " WHERE chunks.file_id IN (SELECT value FROM json_each(?))"
)
_COSINES = (
    "SELECT id, 1 - vec_distance_cosine(embedding, ?) AS cosine FROM vectors"
    " WHERE identity_id = ? AND state = 'ready' AND active = 1 AND length(embedding) = ?"
)
_NEAREST = (
    "SELECT * FROM (SELECT vector_id FROM vector_signs WHERE identity_id = ? AND signs IS NOT NULL{}"
    " ORDER BY vec_distance_hamming(vec_bit(signs), vec_bit(?)), vector_id LIMIT ?)"
)
_UNSIGNED = "SELECT vector_id FROM vector_signs WHERE identity_id = ? AND signs IS NULL"
_GIVEN = " AND id IN (SELECT value FROM json_each(?))"
_BEST = " ORDER BY cosine DESC, id LIMIT ?"


class SqliteVec:
    """Have sqlite-vec compare the rows of an identity with the question."""

    def __init__(self, connection: Connection, identity_id: int, query: bytes) -> None:
        self._connection = connection
        self._identity_id = identity_id
        self._query = query

    def top(self, limit: int, files: str | None) -> Scored:
        """Return the best vectors; `files` is a JSON array of file ids to stay in, None for all."""
        known = signs.read(self._connection, self._identity_id)
        depth = known.depth_for(signs.count(self._connection, self._identity_id), limit) if known else 0
        select = _COSINES
        values: list[object] = [self._query, self._identity_id, len(self._query)]
        if known and depth:
            in_files = "" if files is None else f" AND vector_id IN ({_IN_FILES})"
            # What has no signs yet is compared in any case.
            select += f" AND id IN ({_NEAREST.format(in_files)} UNION ALL {_UNSIGNED})"
            values += [self._identity_id, *([] if files is None else [self._identity_id, files])]
            values += [signs.of_question(self._query, known.centre), depth, self._identity_id]
        if files is not None:
            select += f" AND id IN ({_IN_FILES})"
            values += [self._identity_id, files]
        return self._connection.execute(select + _BEST, (*values, limit)).fetchall()

    def cosines(self, vector_ids: Iterable[int]) -> dict[int, float]:
        """Return vectors.id -> cosine, for those of `vector_ids` that are active."""
        values = (self._query, self._identity_id, len(self._query), json_ids(vector_ids))
        return dict(self._connection.execute(_COSINES + _GIVEN, values).fetchall())


class NumpyMatrix:
    """Multiply the cached matrix with the question."""

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


def json_ids(ids: Iterable[int]) -> str:
    """Write row ids as a JSON array, the form in which statements take a list of any length."""
    return "[" + ",".join(map(str, ids)) + "]"
