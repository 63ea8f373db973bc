"""Open an index for searching: one read-only connection, and what is kept between questions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

from memline.shared.index import driver
from memline.shared.search.matches import Matches
from memline.shared.search.vectors import Backends

#: Page cache of a search in KiB, at most: with 16,384 a server took 14 MB more and 2 % less of the time.
CACHE_KIB = 6_144


class SearchIndex:
    """An agent's index as searches see it. Safe to use from several threads: one question at a time.

    `long_lived` processes keep vectors in memory and see every later change of the file, also when it is
    replaced by another; one-shot commands open, ask and close.
    """

    #: What is kept of words and of vectors, for one question at a time, inside a `snapshot`.
    matches: Matches
    backends: Backends

    def __init__(
        self, path: Path, *, long_lived: bool = False, vec_enabled: bool = True, extension_path: str = ""
    ) -> None:
        self.path = path
        self._options = (long_lived, vec_enabled, extension_path)
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._file_id: tuple[int, int] | None = None
        #: How often the file was opened: a version counts for one connection only.
        self._opens = 0

    def close(self) -> None:
        """Close the connection and free the vectors; the next question opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

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
            self.matches, self.backends = Matches(self._connection), Backends(*self._options)
        return self._connection
