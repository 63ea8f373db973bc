"""Compare the vector of a question with those of the chunks.

A long-lived process keeps a matrix in memory (numpy alone costs 110 ms of CPU to import); a one-shot command
has sqlite-vec compare the rows. Of many vectors those that are nearest by their bits are compared exactly, by
both. Filters come before the best are chosen: the third best note of a folder may be the thousandth of all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from sqlite3 import Connection
from typing import Any

from msgspec import Struct

from memline.shared.index import bits
from memline.shared.index.driver import json_ids

#: Ids with their cosines, the best first.
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
_GIVEN = " AND id IN (SELECT value FROM json_each(?))"
# Ties by their text, so that an index that was made in another order gives the same answer.
_BEST = " ORDER BY cosine DESC, text_hash LIMIT ?"
_BY_BITS = (
    "SELECT vector_id FROM vector_bits WHERE identity_id = ?1{0}"
    " ORDER BY vec_distance_hamming(vec_bit(bits), vec_bit(?2)) LIMIT ?3"
)
# CROSS JOIN: the few rows that are given first, not all vectors of the identity (300 ms at 10,000).
_CHUNKS_OF = (
    "SELECT chunks.id, vectors.id FROM vectors CROSS JOIN chunks ON chunks.text_hash = vectors.text_hash"
    " WHERE vectors.id IN (SELECT value FROM json_each(?1))"
    " AND (?2 IS NULL OR file_id IN (SELECT value FROM json_each(?2))) ORDER BY chunks.id"
)
_VECTORS_OF = (
    "SELECT chunks.id, vectors.id FROM chunks CROSS JOIN vectors"
    " ON vectors.identity_id = ? AND vectors.text_hash = chunks.text_hash"
    " WHERE chunks.id IN (SELECT value FROM json_each(?))"
)


class Comparison(Struct, frozen=True):
    """One question, and the active vectors of an identity."""

    connection: Connection
    identity_id: int
    query: bytes
    #: A `VectorMatrix`, whose module imports numpy; None: sqlite-vec compares the rows.
    matrix: Any

    def top(self, limit: int, files: str | None) -> Scored:
        """Return the best vectors; `files` is a JSON array of file ids to stay in, None for all."""
        connection, within, given, allowed = self.connection, "", list[str](), None
        if files is not None:
            rows = connection.execute(_IN_FILES, (self.identity_id, files))
            allowed = sorted({row_id for (row_id,) in rows})
            within, given = _GIVEN, [json_ids(allowed)]
        if self.matrix is not None:
            best: Scored = self.matrix.top(connection, self.query, limit, allowed)
            return best
        if centre := bits.centre_of(connection, self.identity_id):
            nearest = _BY_BITS.format(" AND vector_id IN (SELECT value FROM json_each(?4))" * len(given))
            depth = bits.depth(len(self.query) // 4, limit)
            asked = (self.identity_id, bits.of_question(self.query, centre), depth, *given)
            near = json_ids(row_id for (row_id,) in connection.execute(nearest, asked))
            within, given = within + _GIVEN, [*given, near]
        values = (self.query, self.identity_id, len(self.query), *given, limit)
        return connection.execute(_COSINES + within + _BEST, values).fetchall()

    def cosines(self, vector_ids: Collection[int]) -> dict[int, float]:
        """Return vectors.id -> cosine, for those of `vector_ids` that are active."""
        if self.matrix is not None:
            cosines: dict[int, float] = self.matrix.cosines(self.connection, self.query, vector_ids)
            return cosines
        values = (self.query, self.identity_id, len(self.query), json_ids(vector_ids))
        return dict(self.connection.execute(_COSINES + _GIVEN, values).fetchall())


def chunks_of(connection: Connection, vector_ids: Iterable[int], files: str | None) -> dict[int, int]:
    """Return the chunks of some vectors, each with its vector: one text may be in many files."""
    return dict(connection.execute(_CHUNKS_OF, (json_ids(vector_ids), files)).fetchall())


def vectors_of(connection: Connection, identity_id: int, chunk_ids: Iterable[int]) -> dict[int, int]:
    """Return the vectors of chunks, for those that have one of the identity."""
    return dict(connection.execute(_VECTORS_OF, (identity_id, json_ids(chunk_ids))).fetchall())
