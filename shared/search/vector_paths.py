"""The vector leg: four ways over the same vectors, which give the same hits.

    Vec0         sqlite-vec's own table: one-shot commands (numpy alone costs 110 ms of CPU to import)
    BlobScan     sqlite-vec's function over the rows, when the table is missing or stale
    Matrix       the cached float32 matrix: long-lived processes
    PurePython   the rows and arithmetic, when neither sqlite-vec nor numpy is there

Each is made for one question. Filters come before the best are chosen: the third best note of a folder may
be the thousandth of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.index.matrix import VectorMatrix

#: (vectors.id, cosine), best first.
Found = list[tuple[int, float]]

#: The most rows sqlite-vec gives for one question.
VEC0_LIMIT = 4_096

_LIVE = "identity_id = ? AND state = 'ready' AND live = 1 AND length(embedding) = ?"
_IN_FILES = (
    "SELECT vectors.id FROM chunks CROSS JOIN vectors"
    " ON vectors.identity_id = ? AND vectors.text_hash = chunks.text_hash"
    " WHERE chunks.file_id IN (SELECT value FROM json_each(?))"
)
_SOME = "SELECT value FROM json_each(?)"
_BLOB_COSINES = f"SELECT id, 1 - vec_distance_cosine(embedding, ?) AS cosine FROM vectors WHERE {_LIVE}"


class VectorPath(Protocol):
    """One question compared with the live vectors of an identity."""

    def top(self, limit: int, files: str | None) -> Found:
        """The best vectors; `files` is a JSON array of file ids to stay in, None for all."""
        ...

    def cosines(self, vector_ids: Iterable[int]) -> dict[int, float]:
        """vectors.id -> cosine, for those of `vector_ids` that are live."""
        ...


class BlobScan:
    """A scan of the rows with sqlite-vec's distance function."""

    def __init__(self, connection: Connection, identity_id: int, query: bytes) -> None:
        self._connection = connection
        self._identity_id = identity_id
        self._query = query

    def top(self, limit: int, files: str | None) -> Found:
        order = " ORDER BY cosine DESC, id LIMIT ?"
        if files is None:
            return self._cosines(order, limit)
        return self._cosines(f" AND id IN ({_IN_FILES}){order}", self._identity_id, files, limit)

    def cosines(self, vector_ids: Iterable[int]) -> dict[int, float]:
        return dict(self._cosines(f" AND id IN ({_SOME})", json_ids(vector_ids)))

    def _cosines(self, rest: str, *values: object) -> Found:
        live = (self._query, self._identity_id, len(self._query))
        return self._connection.execute(_BLOB_COSINES + rest, (*live, *values)).fetchall()


class Vec0(BlobScan):
    """Nearest neighbours from the vec0 table of the identity."""

    def top(self, limit: int, files: str | None) -> Found:
        select = (
            f"SELECT rowid, 1 - distance FROM vec_{int(self._identity_id)} WHERE embedding MATCH ? AND k = ?"
        )
        k = min(limit, VEC0_LIMIT)
        if files is None:
            rows = self._connection.execute(select, (self._query, k))
        else:
            rows = self._connection.execute(
                f"{select} AND rowid IN ({_IN_FILES})", (self._query, k, self._identity_id, files)
            )
        return sorted(rows.fetchall(), key=_best_first)


class Matrix:
    """The cached matrix; needs numpy."""

    def __init__(self, connection: Connection, matrix: VectorMatrix, query: bytes) -> None:
        self._connection = connection
        self._identity_id = matrix.identity_id
        self._scores = matrix.search(query)

    def top(self, limit: int, files: str | None) -> Found:
        if files is None:
            return self._scores.top(limit)
        rows = self._connection.execute(_IN_FILES, (self._identity_id, files))
        return self._scores.top(limit, (row[0] for row in rows))

    def cosines(self, vector_ids: Iterable[int]) -> dict[int, float]:
        return self._scores.of(vector_ids)


class PurePython:
    """Arithmetic over the rows: 25 ms a thousand vectors of 384 dimensions, but it always works."""

    def __init__(self, connection: Connection, identity_id: int, query: bytes) -> None:
        self._connection = connection
        self._live = (identity_id, len(query))
        self._query = _floats(query)

    def top(self, limit: int, files: str | None) -> Found:
        if files is None:
            scored = self._score("")
        else:
            scored = self._score(f" AND id IN ({_IN_FILES})", self._live[0], files)
        return sorted(scored, key=_best_first)[:limit]

    def cosines(self, vector_ids: Iterable[int]) -> dict[int, float]:
        return dict(self._score(f" AND id IN ({_SOME})", json_ids(vector_ids)))

    def _score(self, where: str, *values: object) -> Found:
        from operator import mul

        rows = self._connection.execute(
            f"SELECT id, embedding FROM vectors WHERE {_LIVE}{where}", (*self._live, *values)
        )
        return [(row_id, sum(map(mul, _floats(embedding), self._query))) for row_id, embedding in rows]


def _best_first(found: tuple[int, float]) -> tuple[float, int]:
    return -found[1], found[0]


def _floats(vector: bytes) -> Iterable[float]:
    import sys
    from array import array

    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def json_ids(ids: Iterable[int]) -> str:
    """Row ids as a JSON array, the form in which statements take a list of any length."""
    return "[" + ",".join(map(str, ids)) + "]"
