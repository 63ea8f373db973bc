"""Open an index for searching: one read-only connection, and what is kept between questions."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memline.shared.index import driver, signs
from memline.shared.index.identities import IdentityRow
from memline.shared.packages import lack
from memline.shared.search.postings import Postings
from memline.shared.search.retrievers import Links
from memline.shared.search.snippets import Marker
from memline.shared.search.vector_backends import NumpyMatrix, SqliteVec, VectorBackend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.index.matrix import VectorMatrix

#: Page cache of a search in KiB, at most: with 16,384 a server took 14 MB more and 2 % less of the time.
CACHE_KIB = 6_144

#: Bytes of vectors that a process keeps whole: 20,000 of 1,536. Of more it keeps the signs.
FEW_FLOATS = 120_000_000

#: Bytes of vectors that it keeps whole while no signs of them are made. More are read from the disk.
MAX_FLOATS = 400_000_000


class SearchIndex:
    """An agent's index as searches see it. Safe to use from several threads: one question at a time.

    `long_lived` processes keep a matrix of all vectors in memory and see every later change of the file,
    also when it is replaced by another; one-shot commands open, ask and close.
    """

    def __init__(
        self, path: Path, *, long_lived: bool = False, vec_enabled: bool = True, extension_path: str = ""
    ) -> None:
        self.path = path
        self.long_lived = long_lived
        #: Why sqlite-vec is not used; empty while it is, or was not needed yet.
        self.vec_error = ""
        #: For words; like the next for one question at a time, inside a `snapshot`.
        self.postings = Postings()
        #: For vectors.
        self.links = Links()
        #: For snippets.
        self.marker = Marker()
        self._vec_enabled = vec_enabled
        self._extension_path = extension_path
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._file_id: tuple[int, int] | None = None
        #: How often the file was opened: a version counts for one connection only.
        self._opens = 0
        self._vec_loaded: bool | None = None
        self._matrix: VectorMatrix | None = None

    def close(self) -> None:
        """Close the connection and free the matrix; the next question opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            self._vec_loaded = None
            self._matrix = None
            self.postings, self.links = Postings(), Links()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield the connection in one read transaction: all retrievers see the same index.

        Raises IndexMissing while there is none, and the other IndexFaults.
        """
        with self._lock:
            connection = self._open()
            with driver.faults(self.path):
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    def version(self) -> tuple[int, int]:
        """Return a mark that changes whenever anything is committed to the index.

        Raises IndexMissing while there is none, and the other IndexFaults.
        """
        with self._lock:
            connection = self._open()
            with driver.faults(self.path):
                return self._opens, int(connection.execute("PRAGMA data_version").fetchone()[0])

    def vector_backend(
        self, connection: Connection, active: IdentityRow, query: bytes
    ) -> VectorBackend | None:
        """Choose how to compare `query` with the vectors of `active`; None when no backend is installed."""
        if self.long_lived and (matrix := self._numpy(connection, active, query, limit=MAX_FLOATS)):
            return matrix
        return self._sqlite_vec(connection, active, query) or self._numpy(connection, active, query)

    def _open(self) -> Connection:
        if self._connection is not None and self._file_id != driver.file_id(self.path):
            # The file was moved aside and built again: the old connection reads what is no longer there.
            self.close()
        if self._connection is None:
            self._file_id = driver.file_id(self.path)
            self._connection = driver.open_reader(self.path, cache_kib=CACHE_KIB)
            self._opens += 1
            if self.long_lived:
                self.postings = self._array_postings(self._connection)
        return self._connection

    def _array_postings(self, connection: Connection) -> Postings:
        """Return postings in arrays; without numpy, or where nothing temporary can be made, others."""
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            from memline.shared.search.array_postings import ArrayPostings, prepare  # imports numpy: 110 ms

            prepare(connection)
        except (ImportError, driver.library().Error):
            return Postings()
        return ArrayPostings()

    def _sqlite_vec(self, connection: Connection, active: IdentityRow, query: bytes) -> SqliteVec | None:
        if self._vec_loaded is None:
            self.vec_error = "store.vector.enabled is off"
            if self._vec_enabled:
                self.vec_error = driver.load_vec(connection, self._extension_path)
            self._vec_loaded = not self.vec_error
        if not self._vec_loaded:
            return None
        return SqliteVec(connection, active.id, query)

    def _numpy(
        self, connection: Connection, active: IdentityRow, query: bytes, *, limit: int | None = None
    ) -> NumpyMatrix | None:
        """Compare with a matrix; None without numpy, or when it would take more than `limit` bytes."""
        # The product is bound by memory, not by arithmetic. OpenBLAS's threads spin while they wait for each
        # other: 20 ms of CPU instead of 8 for a question at 10,000 vectors with another process at work.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if lack("numpy"):
            return None
        from memline.shared.index.matrix import SignMatrix, VectorMatrix  # imports numpy: 110 ms

        key = active.id, active.vector_dims
        matrix = self._matrix
        if matrix is not None and (matrix.identity_id, matrix.dims) != key:
            matrix = self._matrix = None
        count = signs.count(connection, active.id) if matrix is None else len(matrix)
        size = 4 * active.vector_dims * count
        centre = signs.read_centre(connection, active.id) if size > FEW_FLOATS else None
        if centre:
            if not isinstance(matrix, SignMatrix) or matrix.centre != centre:
                matrix = self._matrix = SignMatrix(*key, centre)
        elif limit is not None and size > limit:
            self._matrix = None
            return None
        elif matrix is None or isinstance(matrix, SignMatrix):
            matrix = self._matrix = VectorMatrix(*key)
        matrix.refresh(connection)
        return NumpyMatrix(connection, matrix, query)
