"""Open an index for searching, and compare the vector of a question with those of the chunks.

A long-lived process keeps a matrix in memory (numpy alone costs 110 ms of CPU to import); a one-shot command
has sqlite-vec compare the rows. Of many vectors those that are nearest by their bits are compared exactly, by
both. Filters come before the best are chosen: the third best note of a folder may be the thousandth of all.
"""

import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from msgspec import Struct

from memline.shared.errors import ProviderError
from memline.shared.index import bits, driver
from memline.shared.index.driver import json_ids
from memline.shared.index.identities import IdentityRow
from memline.shared.packages import lack, remedy
from memline.shared.search.matches import Matches

#: Ids with their cosines, the best first.
Scored = list[tuple[int, float]]

# CROSS JOIN: the few rows that are given first, not all vectors of the identity (300 ms at 10,000).
_VECTORS_OF = (
    "SELECT chunks.id, vectors.id FROM chunks CROSS JOIN vectors"
    " ON vectors.identity_id = ?1 AND vectors.text_hash = chunks.text_hash"
    " WHERE chunks.{} IN (SELECT value FROM json_each(?2))"
)
#: Also the chunks of vectors, in the files that are searched: one text may be in many.
_PAIRS = (
    f"{_VECTORS_OF.format('id')} UNION"
    " SELECT chunks.id, vectors.id FROM vectors CROSS JOIN chunks ON chunks.text_hash = vectors.text_hash"
    " WHERE vectors.id IN (SELECT value FROM json_each(?3))"
    " AND (?4 IS NULL OR file_id IN (SELECT value FROM json_each(?4)))"
)
# Ties by their text, so that an index that was made in another order gives the same answer.
_COSINES = (
    "SELECT id, 1 - vec_distance_cosine(embedding, ?1) AS cosine FROM vectors"
    " WHERE identity_id = ?2 AND state = 'ready' AND active = 1 AND length(embedding) = ?3{}"
    " ORDER BY cosine DESC, text_hash LIMIT ?4"
)
_GIVEN = " AND id IN (SELECT value FROM json_each(?5))"
_BY_BITS = (
    "SELECT vector_id FROM vector_bits WHERE identity_id = ?1"
    " AND (?4 IS NULL OR vector_id IN (SELECT value FROM json_each(?4)))"
    " ORDER BY vec_distance_hamming(vec_bit(bits), vec_bit(?2)) LIMIT ?3"
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
        allowed = None
        if files is not None:
            of_files = self.connection.execute(_VECTORS_OF.format("file_id"), (self.identity_id, files))
            allowed = sorted({vector_id for _, vector_id in of_files})
        if self.matrix is not None:
            best: Scored = self.matrix.top(self.connection, self.query, limit, allowed)
            return best
        given = None if allowed is None else json_ids(allowed)
        if centre := bits.centre_of(self.connection, self.identity_id):
            depth = bits.depth(len(self.query) // 4, limit)
            asked = (self.identity_id, bits.of_question(self.query, centre), depth, given)
            given = json_ids(row_id for (row_id,) in self.connection.execute(_BY_BITS, asked))
        return self._by_rows(given, limit)

    def cosines(self, vector_ids: Collection[int]) -> dict[int, float]:
        """Return vectors.id -> cosine, for those of `vector_ids` that are active."""
        if self.matrix is None:
            return dict(self._by_rows(json_ids(vector_ids)))
        cosines: dict[int, float] = self.matrix.cosines(self.connection, self.query, vector_ids)
        return cosines

    def _by_rows(self, given: str | None, limit: int = -1) -> Scored:
        query = _COSINES.format("" if given is None else _GIVEN)
        values = (self.query, self.identity_id, len(self.query), limit, given)
        return self.connection.execute(query, values[: query.count("?")]).fetchall()

    def pairs(self, chunk_ids: Iterable[int], vector_ids: Iterable[int], files: str | None) -> dict[int, int]:
        """Return chunk -> vector, of these chunks and of all in `files` that have one of these vectors."""
        asked = (self.identity_id, json_ids(chunk_ids), json_ids(vector_ids), files)
        return dict(self.connection.execute(_PAIRS, asked).fetchall())


class SearchIndex:
    """An agent's index as searches see it. Safe to use from several threads: one question at a time.

    It sees every change, also of a file that is replaced; `long_lived` processes keep vectors in memory.
    """

    #: What is kept of words, for one question at a time, inside a `snapshot`.
    matches: Matches

    def __init__(
        self, path: Path, *, long_lived: bool = False, vec_enabled: bool = True, extension_path: str = ""
    ) -> None:
        self.path, self._long_lived = path, long_lived
        self._is_off = "" if vec_enabled else "store.vector.enabled is off"
        self._extension_path = extension_path
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._file_id: tuple[int, int] | None = None
        #: How often the file was opened: a version counts for one connection only.
        self._opens = 0
        #: A mark of what the last snapshot saw: another once anything was committed to the index.
        self.version = 0, 0
        #: Why sqlite-vec is not used; empty where it is, None while it was not needed.
        self._vec_error: str | None = None
        #: A `VectorMatrix`, whose module imports numpy, and the version and identity that it has.
        self._matrix: Any = None
        self._matrix_of: object = None

    def close(self) -> None:
        """Close the connection and free the vectors; the next question opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._matrix = self._vec_error = None

    def known(self, asked: object) -> Any:
        """Return what was answered since the index changed; None for what was not asked."""
        if self._connection is None or asked not in self.matches.answers:
            return None
        with self.snapshot():
            return self.matches.answers.get(asked)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Yield the connection. Raises IndexFaults (IndexMissing: there is none)."""
        with self._lock, driver.faults(self.path):
            yield self._follow(self._open())

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield the connection in one read transaction. Raises as `connected` does."""
        with self._lock, driver.faults(self.path), driver.snapshot(connection := self._open()):
            yield self._follow(connection)

    def _follow(self, connection: Connection) -> Connection:
        self.matches.follow()
        self.version = self._opens, self.matches.version
        return connection

    def _open(self) -> Connection:
        if self._connection is not None and self._file_id != driver.file_id(self.path):
            # The file was moved aside and built again: the old connection reads what is no longer there.
            self.close()
        if self._connection is None:
            self._file_id = driver.file_id(self.path)
            connection = driver.open_reader(self.path)
            self._opens += 1
            self.matches = Matches(connection)
            # Last: `known` asks without the lock.
            self._connection = connection
        return self._connection

    def comparison(self, active: IdentityRow | None, identity_id: int, query: bytes) -> Comparison:
        """Return what compares `query` with the active vectors, in a `snapshot`. Raises ProviderError."""
        if active is None or active.id != identity_id:
            raise ProviderError("the model was changed meanwhile", hint="search again")
        if (dims := len(query) // 4) != active.vector_dims:
            what = f"the question has {dims} dimensions, the index {active.vector_dims}"
            raise ProviderError(what, hint="memline index")
        connection = self.matches.connection
        is_in_rows = not self._long_lived or lack("numpy")
        if self._vec_error is None and is_in_rows:
            self._vec_error = self._is_off or driver.load_vec(connection, self._extension_path)
        if self._vec_error and (why := lack("numpy")):
            what = f"numpy {why}, and sqlite-vec: {self._vec_error}"
            raise ProviderError(what, hint=remedy("numpy"))
        matrix = None if self._vec_error == "" else self._numpy(connection, active)
        return Comparison(connection, active.id, query, matrix)

    def _numpy(self, connection: Connection, active: IdentityRow) -> Any:
        from memline.shared.index.matrix import VectorMatrix  # imports numpy: 110 ms

        matrix, asked = self._matrix, (self.version, active.id)
        if matrix is None or self._matrix_of != asked:
            key = active.id, active.vector_dims, bits.centre_of(connection, active.id)
            if matrix is None or (matrix.identity_id, matrix.dims, matrix.centre) != key:
                self._matrix = matrix = VectorMatrix(*key)
            matrix.refresh(connection)
            self._matrix_of = asked
        return matrix
