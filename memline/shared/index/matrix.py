"""Keep the active vectors of one identity in memory, in step with the index.

A long-lived process searches this instead of the rows: one matrix-vector product, close to memory bandwidth.
Of a large identity the bits are in memory (`bits.py`), a thirty-second; the nearest by their bits are read
from their rows and compared exactly.

Needs numpy, which takes 110 ms to import: one-shot commands do not import this.
"""

from __future__ import annotations

from collections.abc import Collection
from sqlite3 import Connection
from typing import Any

import numpy as np

from memline.shared.index import bits
from memline.shared.index.driver import json_ids, scalar

Ids = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float32]]
Rows = np.ndarray[Any, Any]

#: Vectors read from the index at a time: 1.5 MB at 384 dimensions.
READ_ROWS = 1_000

#: Room for more, as a share of the matrix; the pages of zeros take no memory until they are used.
GROWTH = 0.125

#: Rows whose bits are counted at a time: what is counted stays in the cache of a core.
_COUNTED = 4_096

#: Answered from an index alone (`vectors_state`): the rows hold the embeddings, megabytes of them. As one
#: text: 9,000 rows take four times as long to fetch.
_ACTIVE_IDS = "SELECT group_concat(id) FROM vectors WHERE identity_id = ? AND active = 1 AND state = 'ready'"
# The plus signs: by the ids, and not by way of an index of the rest, a third slower.
_EMBEDDINGS = (
    "SELECT id, embedding FROM vectors WHERE id IN (SELECT value FROM json_each(?))"
    " AND +identity_id = ? AND +active = 1 AND +state = 'ready' AND length(embedding) = ?"
)
_BITS = (
    "SELECT vector_id, bits FROM vector_bits WHERE vector_id IN (SELECT value FROM json_each(?))"
    " AND identity_id = ? AND length(bits) = ?"
)

#: (vectors.id, cosine), best first.
Scored = list[tuple[int, float]]


class VectorMatrix:
    """The active vectors of an identity. Not safe for several threads at once; its owner holds a lock."""

    def __init__(self, identity_id: int, dims: int, centre: bytes | None = None) -> None:
        """`centre`: what the bits of the vectors are taken to; None keeps the vectors themselves."""
        self.identity_id, self.dims, self.centre = identity_id, dims, centre
        #: Rows in use; there may be room for more behind them.
        self._size = 0
        self._ids: Ids = np.zeros(0, np.int64)
        # Bits are counted by words of 64.
        width, kind = (dims, np.float32) if centre is None else (-(-dims // 64) * 8, np.uint8)
        self._rows: Rows = np.zeros((0, width), kind)

    def __len__(self) -> int:
        return self._size

    def refresh(self, connection: Connection) -> None:
        """Load what changed in the index since the last call: ids are compared, and new vectors are read."""
        listed = scalar(connection, _ACTIVE_IDS, self.identity_id) or ""
        active = np.fromstring(listed, np.int64, sep=",")
        known = self._ids[: self._size]
        stays = np.isin(known, active, assume_unique=True)
        new = np.setdiff1d(active, known, assume_unique=True)
        if not stays.all():
            # In their order: the last bits of a cosine depend on the place of its row.
            kept = int(stays.sum())
            self._ids[:kept], self._rows[:kept] = known[stays], self._rows[: self._size][stays]
            self._size = kept
        self._make_room(self._size + len(new))
        for first in range(0, len(new), READ_ROWS):
            some = new[first : first + READ_ROWS].tolist()
            ids, read = self._read(connection, some, of_bits=self.centre is not None)
            before, self._size = self._size, self._size + len(ids)
            self._ids[before : self._size], self._rows[before : self._size, : read.shape[1]] = ids, read

    def _make_room(self, count: int) -> None:
        if count <= len(self._ids):
            return
        # New memory, and not more of the old: numpy asks for huge pages when it allocates, and without
        # them a product takes three times as long.
        room = int(count * (1 + GROWTH))
        ids, rows = np.zeros(room, np.int64), np.zeros((room, self._rows.shape[1]), self._rows.dtype)
        ids[: self._size], rows[: self._size] = self._ids[: self._size], self._rows[: self._size]
        self._ids, self._rows = ids, rows

    def top(
        self, connection: Connection, query: bytes, limit: int, allowed: Collection[int] | None = None
    ) -> Scored:
        """Return the vectors nearest to `query` (float32, unit length); `allowed`: only among these ids."""
        ids, rows = self._ids[: self._size], self._rows[: self._size]
        if allowed is not None:
            chosen = np.isin(ids, np.fromiter(allowed, np.int64, len(allowed)))
            ids, rows = ids[chosen], rows[chosen]
        if self.centre is None:
            cosines = rows @ np.frombuffer(query, "<f4")
            best = _least(-cosines, limit)
            found = dict(zip(ids[best].tolist(), cosines[best].tolist(), strict=True))
        else:
            asked = bits.of_question(query, self.centre).ljust(rows.shape[1], b"\0")
            best = _least(_differing(rows, asked), bits.depth(self.dims, limit))
            found = self.cosines(connection, query, ids[best].tolist())
        return sorted(found.items(), key=lambda each: (-each[1], each[0]))[:limit]

    def cosines(self, connection: Connection, query: bytes, vector_ids: Collection[int]) -> dict[int, float]:
        """Map vectors.id to cosine, for those that are active."""
        if self.centre is None:
            at = np.flatnonzero(np.isin(self._ids[: self._size], [*vector_ids]))
            ids, rows = self._ids[at].tolist(), self._rows[at]
        else:
            ids, rows = self._read(connection, vector_ids, of_bits=False)
        return dict(zip(ids, (rows @ np.frombuffer(query, "<f4")).tolist(), strict=True))

    def _read(
        self, connection: Connection, vector_ids: Collection[int], *, of_bits: bool
    ) -> tuple[list[int], Rows]:
        """Read the bits, or the vectors themselves, of those ids that are active."""
        query, width, kind = (_BITS, -(-self.dims // 8), "u1") if of_bits else (_EMBEDDINGS, self.dims, "<f4")
        values = (json_ids(vector_ids), self.identity_id, width * np.dtype(kind).itemsize)
        rows = connection.execute(query, values).fetchall()
        joined = np.frombuffer(b"".join(row[1] for row in rows), kind)
        return [row[0] for row in rows], joined.reshape(len(rows), width)


def _least(values: Rows, count: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the places of the `count` least, in no order."""
    if len(values) <= count:
        return np.arange(len(values))
    return np.argpartition(values, count - 1)[:count]


def _differing(rows: Rows, asked: bytes) -> Rows:
    """Count the bits in which each row differs from those of a question."""
    words, other = rows.view(np.uint64), np.frombuffer(asked, np.uint64)
    counts = np.empty(len(words), np.uint16)
    for first in range(0, len(words), _COUNTED):
        part = np.bitwise_count(words[first : first + _COUNTED] ^ other)
        counts[first : first + _COUNTED] = part.sum(axis=1, dtype=np.uint16)
    return counts
