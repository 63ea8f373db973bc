"""Keep the active vectors of one identity, or their signs, as a matrix in memory, in step with the index.

A long-lived process searches this instead of the rows: one matrix-vector product, close to memory
bandwidth, 10 x faster. It grows in place; the row of a vector that is no longer active is masked
and used again for the next new one, so a day of edits neither copies nor leaks.

Of many vectors only the signs are in memory (`signs.py`), a thirty-second; the nearest by signs are read from
their rows and compared exactly.

Needs numpy, which costs 110 ms of CPU to import: one-shot commands do not import this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from memline.shared.index import meta, signs
from memline.shared.index.driver import scalar

if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.index.signs import Signs

    Floats = np.ndarray[Any, np.dtype[np.float32]]

#: Vectors read from the index at a time: 1.5 MB at 384 dimensions.
READ_ROWS = 1_000

#: Room that is added when the matrix is full, as a share of it.
GROWTH = 0.125

#: Of so many of the nearest vectors a search by signs is to miss hardly any.
TOP = 10

#: Standard deviations by which what is not read is expected to be farther than the last of those. Of a
#: million made vectors 3 found 0.9875 of the ten nearest and read 1,000 rows a question, 4 found 0.9975 and
#: read 1,600, 4.5 found all and read 2,900.
SURE = 4.0

#: Answered from an index alone (`vectors_counts`): the rows hold the embeddings, megabytes of them.
_ACTIVE_IDS = "SELECT id FROM vectors WHERE identity_id = ? AND active = 1 AND state = 'ready'"
# The plus signs: by the ids, and not by way of an index of the rest, a third slower.
_EMBEDDINGS = (
    "SELECT id, embedding FROM vectors WHERE id IN (SELECT value FROM json_each(?))"
    " AND +identity_id = ? AND +active = 1 AND +state = 'ready' AND length(embedding) = ?"
)
_SIGNS = (
    "SELECT vector_id, signs FROM vector_signs WHERE vector_id IN (SELECT value FROM json_each(?))"
    " AND identity_id = ? AND length(signs) = ?"
)
_CHANGES = "SELECT vector_id FROM vector_changes WHERE seq > ?"


class VectorMatrix:
    """A cache of active vectors. Not safe for several threads at once; its owner holds a lock."""

    def __init__(self, identity_id: int, dims: int) -> None:
        self.identity_id = identity_id
        self.dims = dims
        self._rows: np.ndarray[Any, Any] = np.zeros((0, dims), np.float32)
        #: vectors.id of each row; -1 for a free one.
        self._ids = np.zeros(0, np.int64)
        self._row_of: dict[int, int] = {}
        self._free: list[int] = []
        #: `data_version` of the connection at the last refresh.
        self._version: int | None = None
        #: Epoch of the index, and the last change of its log that is in the matrix.
        self._seen: tuple[str, int] | None = None

    def __len__(self) -> int:
        """Count the active vectors."""
        return len(self._row_of)

    @property
    def nbytes(self) -> int:
        """Return the memory of the matrix in bytes, free rows included."""
        return int(self._rows.nbytes)

    def refresh(self, connection: Connection) -> None:
        """Load what changed in the index since the last call; next to nothing when nothing did.

        All vectors are compared the first time, after a restore, and when more changed than the index logs.
        """
        version = int(connection.execute("PRAGMA data_version").fetchone()[0])
        if version == self._version:
            return
        epoch = str(meta.get(connection, meta.EPOCH, ""))
        last = int(scalar(connection, "SELECT max(seq) FROM vector_changes"))
        if self._seen is None or self._seen[0] != epoch:
            self._drop(tuple(self._row_of))
            self._compare(connection)
        else:
            changed = [row[0] for row in connection.execute(_CHANGES, (self._seen[1],))]
            if len(changed) == last - self._seen[1]:
                self._load(connection, changed)
            else:
                # The log goes on by one; a gap is what it has forgotten.
                self._compare(connection)
        self._version, self._seen = version, (epoch, last)

    def search(self, query: bytes) -> MatrixScores | SignScores:
        """Compare all active vectors with `query` (float32, unit length)."""
        scores = self._rows @ np.frombuffer(query, "<f4")
        return MatrixScores(scores, self._ids, self._row_of)

    def _compare(self, connection: Connection) -> None:
        """Compare all ids with the index, and read the vectors that are missing."""
        active = {row[0] for row in connection.execute(_ACTIVE_IDS, (self.identity_id,))}
        self._drop(self._row_of.keys() - active)
        self._reserve(len(active))
        self._load(connection, active - self._row_of.keys())

    def _load(self, connection: Connection, vector_ids: Iterable[int]) -> None:
        """Read these vectors anew, and drop those that are not active any more."""
        # In the order they came: the same index gives the same matrix.
        ids = iter(sorted(set(vector_ids)))
        while batch := list(islice(ids, READ_ROWS)):
            self._drop(batch)
            wanted = "[" + ",".join(map(str, batch)) + "]"
            self._add(connection, wanted)

    def _add(self, connection: Connection, wanted: str) -> None:
        """Read the vectors of a JSON array of ids, as far as they are active."""
        values = (wanted, self.identity_id, 4 * self.dims)
        found = connection.execute(_EMBEDDINGS, values).fetchall()
        self._put([row[0] for row in found], [np.frombuffer(row[1], "<f4") for row in found])

    def _put(self, vector_ids: Sequence[int], values: Iterable[Any]) -> None:
        self._reserve(len(self._row_of) + len(vector_ids))
        for vector_id, each in zip(vector_ids, values, strict=True):
            row = self._free.pop()
            self._rows[row] = each
            self._ids[row] = vector_id
            self._row_of[vector_id] = row

    def _drop(self, vector_ids: Iterable[int]) -> None:
        for vector_id in vector_ids:
            row = self._row_of.pop(vector_id, None)
            if row is not None:
                self._ids[row] = -1
                self._free.append(row)

    def _reserve(self, active: int) -> None:
        missing = active - len(self._row_of) - len(self._free)
        if missing <= 0:
            return
        before, width = self._rows.shape
        size = before + (missing if before == 0 else max(missing, int(before * GROWTH)))
        if before == 0:
            # numpy has new memory laid out in large pages: the signs are scanned in 9/10 of the time.
            self._rows = np.zeros((size, width), self._rows.dtype)
        # In place: no second copy of the matrix. No view of it exists here.
        self._rows.resize((size, width), refcheck=False)
        self._ids.resize(size, refcheck=False)
        self._ids[before:] = -1
        self._free.extend(range(size - 1, before - 1, -1))


class SignMatrix(VectorMatrix):
    """A cache of the signs of active vectors: 192 MB for a million of 1,536 dimensions."""

    def __init__(self, identity_id: int, dims: int, known: Signs) -> None:
        super().__init__(identity_id, dims)
        #: What they are the signs to.
        self.centre = known.centre
        # 512 bits are the least that `signs.distances` counts.
        self._rows = np.zeros((0, -(-dims // 512) * 8), np.uint64)

    def refresh(self, connection: Connection) -> None:
        super().refresh(connection)
        self._connection = connection

    def search(self, query: bytes) -> MatrixScores | SignScores:
        return SignScores(self._connection, self, query, self._rows, self._ids, self._row_of)

    def _add(self, connection: Connection, wanted: str) -> None:
        width = -(-self.dims // 8)
        made = connection.execute(_SIGNS, (wanted, self.identity_id, width)).fetchall()
        here = np.frombuffer(b"".join(row[1] for row in made), np.uint8).reshape(len(made), width)
        self._put([row[0] for row in made], signs.words(here))
        # No writer has made those of the newest yet.
        others = "[" + ",".join(str(each) for each in json.loads(wanted) if each not in self._row_of) + "]"
        values = (others, self.identity_id, 4 * self.dims)
        if found := connection.execute(_EMBEDDINGS, values).fetchall():
            rows = np.array([np.frombuffer(row[1], "<f4") for row in found])
            self._put([row[0] for row in found], signs.words(signs.of_rows(rows, self.centre)))


class SignScores:
    """One question and the signs of vectors; valid until the next refresh of their matrix."""

    def __init__(
        self,
        connection: Connection,
        matrix: SignMatrix,
        query: bytes,
        rows: signs.Words,
        ids: np.ndarray[Any, np.dtype[np.int64]],
        row_of: dict[int, int],
    ) -> None:
        self._connection = connection
        self._matrix = matrix
        self._query = np.frombuffer(query, "<f4")
        self._turned = signs.turned_question(query, matrix.centre)
        self._rows = rows
        self._ids = ids
        self._row_of = row_of
        self._known = signs.read(connection, matrix.identity_id)

    def top(self, limit: int, allowed: Iterable[int] | None = None) -> list[tuple[int, float]]:
        """Return the best (vectors.id, cosine), best first; `allowed`: only among these ids."""
        if allowed is None:
            rows = np.flatnonzero(self._ids >= 0)
        else:
            known = (self._row_of.get(vector_id, -1) for vector_id in allowed)
            rows = np.unique(np.fromiter((row for row in known if row >= 0), np.int64))
        depth = self._known.depth_for(len(self._row_of), limit) if self._known else 0
        if depth and len(rows) > depth:
            scored = self._nearest(rows, depth, limit)
        else:
            scored = self.of(self._ids[rows].tolist())
        return sorted(scored.items(), key=lambda each: (-each[1], each[0]))[:limit]

    def _nearest(self, rows: np.ndarray[Any, np.dtype[np.intp]], depth: int, limit: int) -> dict[int, float]:
        """Compare the best of some rows exactly: those nearest by signs, and of these by `nearness`.

        First as many as are always read. They show how far nearness tells the cosine; of the others those are
        read that may be among the TOP best.
        """
        own = signs.words(np.packbits(self._turned > 0)[None])
        if 4 * len(rows) > len(self._rows):
            # Many are not copied.
            differing = signs.distances(self._rows, own)[rows]
        else:
            differing = signs.distances(self._rows[rows], own)
        # By counting how many differ in how many bits: sorting a million takes longer.
        within = np.searchsorted(np.cumsum(np.bincount(differing)), depth)
        rows = rows[differing <= within]
        near = signs.nearness(self._rows[rows], self._turned)
        read = signs.least_read(limit)
        if len(rows) > read:
            order = np.argpartition(-near, read - 1)
            rows, near = rows[order], near[order]
        ids = self._ids[rows].tolist()
        scored = self.of(ids[:read])
        if len(rows) > read >= TOP:
            found = np.array([scored[each] for each in ids[:read]])
            # Least squares: cosine = slope * near + mean, and how far that is off.
            centred = near - near[:read].mean()
            slope = centred[:read] @ found / (centred[:read] @ centred[:read] or 1.0)
            expected = slope * centred + found.mean()
            off = (found - expected[:read]).std()
            more = expected[read:] + SURE * off >= np.partition(found, -TOP)[-TOP]
            scored |= self.of([each for each, is_likely in zip(ids[read:], more, strict=True) if is_likely])
        return scored

    def of(self, vector_ids: Iterable[int]) -> dict[int, float]:
        """Map vectors.id to cosine, for those that are active."""
        found: dict[int, float] = {}
        ids = iter(sorted(vector_ids))
        while batch := list(islice(ids, READ_ROWS)):
            wanted = "[" + ",".join(map(str, batch)) + "]"
            values = (wanted, self._matrix.identity_id, 4 * self._matrix.dims)
            for vector_id, embedding in self._connection.execute(_EMBEDDINGS, values):
                found[vector_id] = float(np.frombuffer(embedding, "<f4") @ self._query)
        return found


class MatrixScores:
    """The cosines of one question; valid until the next refresh of its matrix."""

    def __init__(self, scores: Floats, ids: np.ndarray[Any, np.dtype[np.int64]], row_of: dict[int, int]):
        self._scores = scores
        self._ids = ids
        self._row_of = row_of

    def top(self, limit: int, allowed: Iterable[int] | None = None) -> list[tuple[int, float]]:
        """Return the best (vectors.id, cosine), best first; `allowed`: only among these ids."""
        if allowed is None:
            rows = np.flatnonzero(self._ids >= 0)
        else:
            known = (self._row_of.get(vector_id, -1) for vector_id in allowed)
            rows = np.unique(np.fromiter((row for row in known if row >= 0), np.int64))
        scores = self._scores[rows]
        if len(rows) > limit:
            best = np.argpartition(-scores, limit - 1)[:limit]
            rows, scores = rows[best], scores[best]
        ids = self._ids[rows]
        order = np.lexsort((ids, -scores))
        return [(int(ids[i]), float(scores[i])) for i in order]

    def of(self, vector_ids: Iterable[int]) -> dict[int, float]:
        """Map vectors.id to cosine, for those that are active."""
        known = ((vector_id, self._row_of.get(vector_id)) for vector_id in vector_ids)
        return {vector_id: float(self._scores[row]) for vector_id, row in known if row is not None}
