"""Compare the vector of a question with the active vectors of an identity.

    SqliteVec     the rows, by sqlite-vec: one-shot commands (numpy alone costs 110 ms of CPU to import)
    NumpyMatrix   a cached matrix: long-lived processes, and wherever the extension is missing

Of many vectors those that are nearest by their signs (`shared.index.signs`) are compared, by both.

Both return the same hits. Each is made for one question. Filters come before the best are chosen: the third
best note of a folder may be the thousandth of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from memline.shared.index import signs
from memline.shared.index.driver import json_ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.index.matrix import VectorMatrix

#: Estimates that are looked at to tell how many of the nearest may be missed, at most.
_SAMPLED = 8_192

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
# By what `signs.of_question` says.
_BY_SIGNS = (
    "SELECT vector_id,"
    " length * (? + ? * vec_distance_hamming(vec_bit(signs), vec_bit(?)) + ? * length) AS near"
    " FROM vector_signs WHERE identity_id = ? AND signs IS NOT NULL{}"
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
        within = "" if files is None else f" AND id IN ({_IN_FILES})"
        only = () if files is None else (self._identity_id, files)
        values = (self._query, self._identity_id, len(self._query))
        centre = signs.read_centre(self._connection, self._identity_id)
        if not centre:
            return self._connection.execute(_COSINES + within + _BEST, (*values, *only, limit)).fetchall()
        question, (by_length, by_bit, by_square) = signs.of_question(self._query, centre)
        by_signs = _BY_SIGNS.format(within.replace(" id", " vector_id"))
        aim = (by_length, by_bit, question, by_square, self._identity_id, *only)
        near = self._connection.execute(
            f"{by_signs} ORDER BY near DESC, vector_id LIMIT ?", (*aim, signs.least_read(limit))
        ).fetchall()
        known = self.cosines(vector_id for vector_id, _ in near)
        step = -(-signs.count(self._connection, self._identity_id) // _SAMPLED)
        sample = self._connection.execute(f"{by_signs} AND vector_id % ? = 0", (*aim, step)).fetchall()
        found = [(each, known[vector_id]) for vector_id, each in near if vector_id in known]
        least = _least(found, sorted(each for _, each in sample), step)
        # What has no signs yet is compared in any case.
        more = self._connection.execute(
            f"{_COSINES} AND id IN (SELECT vector_id FROM ({by_signs}) WHERE near >= ?"
            f" UNION ALL {_UNSIGNED}){within}{_BEST}",
            (*values, *aim, least, self._identity_id, *only, limit),
        )
        return sorted((known | dict(more)).items(), key=lambda each: (-each[1], each[0]))[:limit]

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


def _least(found: Sequence[tuple[float, float]], estimates: Sequence[float], step: int) -> float:
    """Return the estimate below which hardly any of the best is expected: `matrix.Line`, without numpy.

    `found`: pairs of estimate and cosine. `estimates`: every `step`th one, the smallest first.
    """
    if len(found) <= signs.TOP:
        return -math.inf
    mean, base = (sum(column) / len(found) for column in zip(*found, strict=True))
    spread = sum((estimate - mean) ** 2 for estimate, _ in found)
    slope = sum((estimate - mean) * cosine for estimate, cosine in found) / (spread or 1.0)
    squares = sum((cosine - base - slope * (estimate - mean)) ** 2 for estimate, cosine in found)
    off = math.sqrt(squares / len(found)) or signs.EXACT
    enough = sorted(cosine for _, cosine in found)[-signs.TOP]
    missed = 0.0
    for estimate in estimates:
        away = (enough - base - slope * (estimate - mean)) / off
        missed += step * signs.chance(away)
        if missed > signs.MISSED:
            return estimate
    return math.inf
