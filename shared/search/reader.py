"""An index opened for searching: one connection, read-only, and what is kept between questions."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shared.index import driver, identity, vec
from shared.index.identity import IdentityRow
from shared.search.vector_paths import BlobScan, Matrix, PurePython, Vec0, VectorPath

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.index.matrix import VectorMatrix

#: Numbers in the vectors of an index above which a one-shot command without sqlite-vec imports numpy:
#: about where its 110 ms are less than the arithmetic in Python.
NUMPY_FROM = 2_000_000


class SearchIndex:
    """An agent's index as searches see it. Safe to use from several threads: one question at a time.

    `long_lived` processes keep a matrix of all vectors in memory and see every later change of the file,
    also when it is replaced by another; one-shot commands open, ask and close.
    """

    def __init__(
        self,
        path: Path,
        *,
        long_lived: bool = False,
        vec_enabled: bool = True,
        extension_path: str = "",
    ) -> None:
        self.path = path
        self.long_lived = long_lived
        #: Why sqlite-vec is not used; empty while it is, or while nobody asked.
        self.vec_error = ""
        self._vec_enabled = vec_enabled
        self._extension_path = extension_path
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._opened: tuple[int, int] | None = None
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

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """The connection, in one read transaction: all legs of a question see the same index.

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
        """A mark that is another one whenever anything was committed to the index since it was read last.

        Raises IndexMissing while there is none, and the other IndexFaults.
        """
        with self._lock:
            connection = self._open()
            with driver.faults(self.path):
                return self._opens, int(connection.execute("PRAGMA data_version").fetchone()[0])

    def active_identity(self) -> IdentityRow | None:
        """The identity a question must be embedded with; None while there are no vectors."""
        with self.snapshot() as connection:
            return identity.active(connection)

    def vector_path(self, connection: Connection, active: IdentityRow, query: bytes) -> VectorPath:
        """The best way there is to compare the vector of a question with those of `active`."""
        if self.long_lived or not self._has_vec(connection):
            matrix = self._fresh_matrix(connection, active)
            if matrix is not None:
                return Matrix(connection, matrix, query)
        if not self._has_vec(connection):
            return PurePython(connection, active.id, query)
        if vec.usable(connection, active.id):
            return Vec0(connection, active.id, query)
        return BlobScan(connection, active.id, query)

    def _open(self) -> Connection:
        if self._connection is not None and self._opened != _file_id(self.path):
            # The file was moved aside and built again: the old connection reads what is no more there.
            self.close()
        if self._connection is None:
            self._opened = _file_id(self.path)
            self._connection = driver.open_reader(self.path)
            self._opens += 1
        return self._connection

    def _has_vec(self, connection: Connection) -> bool:
        if self._vec_loaded is None:
            if self._vec_enabled:
                self.vec_error = driver.load_vec(connection, self._extension_path)
            else:
                self.vec_error = "store.vector.enabled is off"
            self._vec_loaded = not self.vec_error
        return self._vec_loaded

    def _fresh_matrix(self, connection: Connection, active: IdentityRow) -> VectorMatrix | None:
        if not self.long_lived and _numbers(connection, active) < NUMPY_FROM:
            return None
        # The product is bound by memory, not by arithmetic. OpenBLAS's threads spin while they wait for each
        # other: 20 ms of CPU instead of 8 for a question at 10,000 vectors with another process at work.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            from shared.index.matrix import VectorMatrix
        except ImportError:
            return None
        matrix = self._matrix
        if matrix is None or (matrix.identity_id, matrix.dims) != (active.id, active.vector_dims):
            matrix = self._matrix = VectorMatrix(active.id, active.vector_dims)
        matrix.refresh(connection)
        return matrix


def _numbers(connection: Connection, active: IdentityRow) -> int:
    count = connection.execute("SELECT count(*) FROM vectors WHERE identity_id = ?", (active.id,))
    return int(count.fetchone()[0]) * active.vector_dims


def _file_id(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
