"""Keep the active vectors of one identity, or their signs, as a matrix in memory, in step with the index.

A long-lived process searches this instead of the rows: one matrix-vector product, close to memory
bandwidth, 10 x faster. It grows in place; the row of a vector that is no longer active is masked
and used again for the next new one, so a day of edits neither copies nor leaks.

Of many vectors only the signs are in memory (`signs.py`), a thirty-second; those that may be among the
nearest are read from their rows and compared exactly.

Needs numpy, which costs 110 ms of CPU to import: one-shot commands do not import this.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from memline.shared.index import signs
from memline.shared.index.driver import json_ids, scalar
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

    Floats = np.ndarray[Any, np.dtype[np.float32]]

#: Vectors read from the index at a time: 1.5 MB at 384 dimensions.
READ_ROWS = 1_000

#: Room that is added when the matrix is full, as a share of it.
GROWTH = 0.125

#: Rows whose first estimate is looked at to tell how many may be missed, at least.
_SAMPLED = 32_768

#: Vectors that are compared exactly before it is asked again how many more are needed.
_READ_AT_ONCE = 4_000

#: Answered from an index alone (`vectors_counts`): the rows hold the embeddings, megabytes of them.
_ACTIVE_IDS = "SELECT id FROM vectors WHERE identity_id = ? AND active = 1 AND state = 'ready'"
# The plus signs: by the ids, and not by way of an index of the rest, a third slower.
_EMBEDDINGS = (
    "SELECT id, embedding FROM vectors WHERE id IN (SELECT value FROM json_each(?))"
    " AND +identity_id = ? AND +active = 1 AND +state = 'ready' AND length(embedding) = ?"
)
_SIGNS = (
    "SELECT vector_id, signs, length FROM vector_signs WHERE vector_id IN (SELECT value FROM json_each(?))"
    " AND identity_id = ? AND length(signs) = ?"
)
_CHANGES = "SELECT vector_id FROM vector_changes WHERE seq > ?"


class VectorMatrix:
    """A cache of active vectors. Not safe for several threads at once; its owner holds a lock."""

    def __init__(self, identity_id: int, dims: int) -> None:
        self.identity_id = identity_id
        self.dims = dims
        self.rows: np.ndarray[Any, Any] = np.zeros((0, dims), np.float32)
        #: vectors.id of each row; -1 for a free one.
        self.ids = np.zeros(0, np.int64)
        self.row_of: dict[int, int] = {}
        self._free: list[int] = []
        #: `data_version` of the connection at the last refresh.
        self._version: int | None = None
        #: The last change of the index's log that is in the matrix.
        self._seen: int | None = None

    def __len__(self) -> int:
        """Count the active vectors."""
        return len(self.row_of)

    @property
    def nbytes(self) -> int:
        """Return the memory of the matrix in bytes, free rows included."""
        return int(self.rows.nbytes)

    def refresh(self, connection: Connection) -> None:
        """Load what changed in the index since the last call; next to nothing when nothing did.

        All vectors are compared the first time, and when more changed than the index logs.
        """
        version = int(connection.execute("PRAGMA data_version").fetchone()[0])
        if version == self._version:
            return
        last = int(scalar(connection, "SELECT max(seq) FROM vector_changes"))
        seen = last if self._seen is None else self._seen
        changed = [row[0] for row in connection.execute(_CHANGES, (seen,))]
        if self._seen is not None and len(changed) == last - seen:
            self._load(connection, changed)
        else:
            # The log goes on by one; a gap is what it has forgotten.
            self._compare(connection)
        self._version, self._seen = version, last

    def search(self, query: bytes) -> MatrixScores | SignScores:
        """Compare all active vectors with `query` (float32, unit length)."""
        scores = self.rows @ np.frombuffer(query, "<f4")
        return MatrixScores(scores, self)

    def rows_of(self, allowed: Iterable[int] | None) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the rows that are in use, or those of the `allowed` ids."""
        if allowed is None:
            return np.flatnonzero(self.ids >= 0)
        known = (self.row_of.get(vector_id, -1) for vector_id in allowed)
        return np.unique(np.fromiter((row for row in known if row >= 0), np.int64))

    def _compare(self, connection: Connection) -> None:
        """Compare all ids with the index, and read the vectors that are missing."""
        active = {row[0] for row in connection.execute(_ACTIVE_IDS, (self.identity_id,))}
        self._drop(self.row_of.keys() - active)
        self._reserve(len(active))
        self._load(connection, active - self.row_of.keys())

    def _load(self, connection: Connection, vector_ids: Iterable[int]) -> None:
        """Read these vectors anew, and drop those that are not active any more."""
        # In the order they came: the same index gives the same matrix.
        ids = iter(sorted(set(vector_ids)))
        while batch := list(islice(ids, READ_ROWS)):
            self._drop(batch)
            wanted = json_ids(batch)
            self._add(connection, wanted)

    def _add(self, connection: Connection, wanted: str) -> None:
        """Read the vectors of a JSON array of ids, as far as they are active."""
        values = (wanted, self.identity_id, 4 * self.dims)
        found = connection.execute(_EMBEDDINGS, values).fetchall()
        self._put([row[0] for row in found], [np.frombuffer(row[1], "<f4") for row in found])

    def _put(self, vector_ids: Sequence[int], values: Iterable[Any]) -> None:
        self._reserve(len(self.row_of) + len(vector_ids))
        for vector_id, each in zip(vector_ids, values, strict=True):
            row = self._free.pop()
            self.rows[row] = each
            self.ids[row] = vector_id
            self.row_of[vector_id] = row

    def _drop(self, vector_ids: Iterable[int]) -> None:
        for vector_id in vector_ids:
            row = self.row_of.pop(vector_id, None)
            if row is not None:
                self.ids[row] = -1
                self._free.append(row)

    def _reserve(self, active: int) -> None:
        missing = active - len(self.row_of) - len(self._free)
        if missing <= 0:
            return
        before, width = self.rows.shape
        size = before + (missing if before == 0 else max(missing, int(before * GROWTH)))
        if before == 0:
            # numpy has new memory laid out in large pages: the signs are scanned in 9/10 of the time.
            self.rows = np.zeros((size, width), self.rows.dtype)
        # In place: no second copy of the matrix. No view of it exists here.
        self.rows.resize((size, width), refcheck=False)
        self.ids.resize(size, refcheck=False)
        self.ids[before:] = -1
        self._free.extend(range(size - 1, before - 1, -1))


class SignMatrix(VectorMatrix):
    """A cache of the signs of active vectors: 196 MB for a million of 1,536 dimensions."""

    def __init__(self, identity_id: int, dims: int, centre: bytes) -> None:
        super().__init__(identity_id, dims)
        #: What they are the signs to.
        self.centre = centre
        # 512 bits are the least that `signs.distances` counts.
        self.rows = np.zeros((0, -(-dims // 512) * 8), np.uint64)
        #: Distance of each row from the centre.
        self.lengths = np.zeros(0, np.float32)

    def refresh(self, connection: Connection) -> None:
        super().refresh(connection)
        self._connection = connection

    def search(self, query: bytes) -> MatrixScores | SignScores:
        return SignScores(self._connection, self, query)

    def _add(self, connection: Connection, wanted: str) -> None:
        width = -(-self.dims // 8)
        made = connection.execute(_SIGNS, (wanted, self.identity_id, width)).fetchall()
        here = np.frombuffer(b"".join(row[1] for row in made), np.uint8).reshape(len(made), width)
        self._put_signs([row[0] for row in made], here, [row[2] for row in made])
        # No writer has made those of the newest yet.
        others = json_ids(each for each in json.loads(wanted) if each not in self.row_of)
        values = (others, self.identity_id, 4 * self.dims)
        if found := connection.execute(_EMBEDDINGS, values).fetchall():
            rows = np.array([np.frombuffer(row[1], "<f4") for row in found])
            self._put_signs([row[0] for row in found], *signs.of_rows(rows, self.centre))

    def _put_signs(self, vector_ids: list[int], made: signs.Bytes, lengths: Any) -> None:
        self._put(vector_ids, signs.words(made))
        self.lengths[[self.row_of[each] for each in vector_ids]] = lengths

    def _reserve(self, active: int) -> None:
        super()._reserve(active)
        self.lengths.resize(len(self.ids), refcheck=False)


class SignScores:
    """One question and the signs of vectors; valid until the next refresh of their matrix."""

    def __init__(self, connection: Connection, matrix: SignMatrix, query: bytes) -> None:
        self._connection = connection
        self._matrix = matrix
        self._query = np.frombuffer(query, "<f4")
        self._aim = signs.Aim(query, matrix.centre)

    def top(self, limit: int, allowed: Iterable[int] | None = None) -> list[tuple[int, float]]:
        """Return the best (vectors.id, cosine), best first; `allowed`: only among these ids."""
        rows = self._matrix.rows_of(allowed)
        read = signs.least_read(limit)
        scored = self._nearest(rows, read) if len(rows) > read else self.of(self._matrix.ids[rows].tolist())
        return sorted(scored.items(), key=lambda each: (-each[1], each[0]))[:limit]

    def _nearest(self, rows: np.ndarray[Any, np.dtype[np.intp]], read: int) -> dict[int, float]:
        """Compare the nearest of some rows exactly: `read` of them, and what may be among the best.

        All are estimated by the bits that differ, those that may be near anew by weighed signs. The best of
        each show how far the estimate before it tells the next one, or the cosine.
        """
        words, lengths, ids = self._matrix.rows, self._matrix.lengths, self._matrix.ids
        if 4 * len(rows) > len(words):
            # Many are not copied.
            differing = signs.distances(words, self._aim.signs)[rows]
        else:
            differing = signs.distances(words[rows], self._aim.signs)
        rough = self._aim.by_distance(differing, lengths[rows])
        rows, rough = _best_first(rows, rough, 4 * read)
        first = rows[: 4 * read]
        weighed = self._aim.weighed(words[first], lengths[first])
        line = Line.through(rough[: len(first)], weighed)
        first, weighed = _best_first(first, weighed, read)
        scored = self.of(ids[first[:read]].tolist())
        found = np.array([scored[each] for each in ids[first[:read]].tolist()])
        enough = _enough(scored)
        exact = Line.through(weighed[:read], found)
        if len(rows) > len(first):
            more = rows[len(first) :][
                rough[len(first) :] >= line.then(exact).least(rough, enough, signs.MISSED_WEIGHED)
            ]
            first = np.concatenate([first, more])
            weighed = np.concatenate([weighed, self._aim.weighed(words[more], lengths[more])])
        more = read + np.flatnonzero(weighed[read:] >= exact.least(weighed, enough, signs.MISSED))
        more = more[np.argsort(-weighed[more])]
        while len(more):
            scored |= self.of(ids[first[more[:_READ_AT_ONCE]]].tolist())
            # The best show that more is enough, and a fifth fewer are read.
            least = exact.least(weighed, _enough(scored), signs.MISSED)
            more = more[_READ_AT_ONCE:]
            more = more[weighed[more] >= least]
        return scored

    def of(self, vector_ids: Iterable[int]) -> dict[int, float]:
        """Map vectors.id to cosine, for those that are active."""
        found: dict[int, float] = {}
        ids = iter(sorted(vector_ids))
        while batch := list(islice(ids, READ_ROWS)):
            wanted = json_ids(batch)
            values = (wanted, self._matrix.identity_id, 4 * self._matrix.dims)
            for vector_id, embedding in self._connection.execute(_EMBEDDINGS, values):
                found[vector_id] = float(np.frombuffer(embedding, "<f4") @ self._query)
        return found


@value
class Line:
    """What an estimate says of the next one: next = slope * estimate + base, and by how much it is off."""

    slope: float
    base: float
    off: float

    @classmethod
    def through(cls, estimates: Floats, found: Floats) -> Line:
        """Fit by least squares."""
        mean, centred = float(estimates.mean()), estimates - estimates.mean()
        slope = float(centred @ found) / (float(centred @ centred) or 1.0)
        base = float(found.mean()) - slope * mean
        return cls(slope=slope, base=base, off=float((found - slope * estimates - base).std()))

    def then(self, other: Line) -> Line:
        """Return what an estimate says of what the next one says."""
        off = math.hypot(other.slope * self.off, other.off)
        return Line(slope=self.slope * other.slope, base=other.slope * self.base + other.base, off=off)

    def least(self, estimates: Floats, enough: float, missed: float) -> float:
        """Return the estimate below which at most `missed` are expected to reach `enough`."""
        step = -(-len(estimates) // _SAMPLED)
        sample = np.sort(estimates[::step].astype(np.float64))
        away = (enough - self.base - self.slope * sample) / (self.off or signs.EXACT)
        within = int(np.searchsorted(np.cumsum(_chances(away)) * step, missed))
        return float(sample[within]) if within < len(sample) else math.inf


def _chances(away: Any) -> Any:
    """Return how likely a normal deviate is above each of these, right to a hundredth of it.

    Far out, where most of many rows are, it counts (Börjesson and Sundberg 1979, eq. 13).
    """
    far = np.abs(away)
    above = np.exp(-far * far / 2) / (
        (0.661 * far + 0.339 * np.sqrt(far * far + 5.51)) * math.sqrt(2 * math.pi)
    )
    return np.where(away < 0, 1 - above, above)


def _enough(scored: Mapping[int, float]) -> float:
    """Return the least cosine of the best that are found."""
    return nlargest(signs.TOP, scored.values())[-1]


def _best_first(rows: Any, estimates: Floats, count: int) -> tuple[Any, Floats]:
    """Put the best `count` before the others, in no order among them."""
    if len(rows) <= count:
        return rows, estimates
    order = np.argpartition(-estimates, count - 1)
    return rows[order], estimates[order]


class MatrixScores:
    """The cosines of one question; valid until the next refresh of its matrix."""

    def __init__(self, scores: Floats, matrix: VectorMatrix) -> None:
        self._scores = scores
        self._matrix = matrix

    def top(self, limit: int, allowed: Iterable[int] | None = None) -> list[tuple[int, float]]:
        """Return the best (vectors.id, cosine), best first; `allowed`: only among these ids."""
        rows = self._matrix.rows_of(allowed)
        scores = self._scores[rows]
        if len(rows) > limit:
            best = np.argpartition(-scores, limit - 1)[:limit]
            rows, scores = rows[best], scores[best]
        ids = self._matrix.ids[rows]
        order = np.lexsort((ids, -scores))
        return [(int(ids[i]), float(scores[i])) for i in order]

    def of(self, vector_ids: Iterable[int]) -> dict[int, float]:
        """Map vectors.id to cosine, for those that are active."""
        known = ((vector_id, self._matrix.row_of.get(vector_id)) for vector_id in vector_ids)
        return {vector_id: float(self._scores[row]) for vector_id, row in known if row is not None}
