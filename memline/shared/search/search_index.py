"""Open an index for searching: one read-only connection, and what is kept between questions."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from memline.shared.index import bits, driver
from memline.shared.index.identities import IdentityRow
from memline.shared.packages import lack
from memline.shared.search.matches import Matches
from memline.shared.search.vectors import Comparison

#: Page cache of a search in KiB, at most: with 16,384 a server took 14 MB more and 2 % less of the time.
CACHE_KIB = 6_144


class SearchIndex:
    """An agent's index as searches see it. Safe to use from several threads: one question at a time.

    `long_lived` processes keep vectors in memory and see every later change of the file, also when it is
    replaced by another; one-shot commands open, ask and close.
    """

    #: What is kept of words, for one question at a time, inside a `snapshot`.
    matches: Matches

    def __init__(
        self, path: Path, *, long_lived: bool = False, vec_enabled: bool = True, extension_path: str = ""
    ) -> None:
        self.path, self._long_lived = path, long_lived
        self._vec_enabled, self._extension_path = vec_enabled, extension_path
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._file_id: tuple[int, int] | None = None
        #: How often the file was opened: a version counts for one connection only.
        self._opens = 0
        #: Why sqlite-vec is not used; None while it was not needed.
        self.vec_error: str | None = None
        #: A `VectorMatrix`; its module imports numpy.
        self._matrix: Any = None

    def close(self) -> None:
        """Close the connection and free the vectors; the next question opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._matrix = self.vec_error = None

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield the connection in one read transaction: all of a search sees the same index.

        Raises IndexMissing while there is none, and the other IndexFaults.
        """
        with self._lock, driver.faults(self.path), driver.snapshot(connection := self._open()):
            self.matches.follow()
            yield connection

    def version(self) -> tuple[int, int]:
        """Return a mark that changes whenever anything is committed to the index; raises IndexFaults."""
        with self._lock, driver.faults(self.path):
            return self._opens, int(driver.scalar(self._open(), "PRAGMA data_version"))

    def _open(self) -> Connection:
        if self._connection is not None and self._file_id != driver.file_id(self.path):
            # The file was moved aside and built again: the old connection reads what is no longer there.
            self.close()
        if self._connection is None:
            self._file_id = driver.file_id(self.path)
            self._connection = driver.open_reader(self.path, cache_kib=CACHE_KIB)
            self._opens += 1
            self.matches = Matches(self._connection)
        return self._connection

    def comparison(self, active: IdentityRow, query: bytes) -> Comparison | None:
        """Return what compares `query` with the vectors of `active`, inside a `snapshot`.

        None when neither numpy nor sqlite-vec can be used.
        """
        connection = self.matches.connection
        matrix = self._numpy(connection, active) if self._long_lived else None
        if matrix is None and self.vec_error is None:
            self.vec_error = "store.vector.enabled is off"
            if self._vec_enabled:
                self.vec_error = driver.load_vec(connection, self._extension_path)
        if matrix is None and self.vec_error and (matrix := self._numpy(connection, active)) is None:
            return None
        return Comparison(connection, active.id, query, matrix)

    def _numpy(self, connection: Connection, active: IdentityRow) -> Any:
        # The product is bound by memory, not by arithmetic. OpenBLAS's threads spin while they wait for each
        # other: 20 ms of CPU instead of 8 for a question at 10,000 vectors with another process at work.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if lack("numpy"):
            return None
        from memline.shared.index.matrix import VectorMatrix  # imports numpy: 110 ms

        key = active.id, active.vector_dims, bits.centre_of(connection, active.id)
        matrix = self._matrix
        if matrix is None or (matrix.identity_id, matrix.dims, matrix.centre) != key:
            self._matrix = matrix = VectorMatrix(*key)
        matrix.refresh(connection)
        return matrix
