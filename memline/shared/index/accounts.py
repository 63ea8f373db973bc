"""Keep what all processes of a home share about provider accounts, in one small SQLite file.

Two agents with one key have one breaker, one minute of limits and one ceiling. Each use is a short
transaction of its own. It may be made while an index is locked, and never the other way round, so no two
processes wait for each other. A crash between the two leaves a probe that is found lost, or counts too much.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection

import msgspec

from memline.shared.errors import IndexCorrupt, IndexFault, IndexMissing, IndexTooOld
from memline.shared.index import driver, meta
from memline.shared.sqlite import library, statements

#: Their `application_id` is the bytes "MemA".
ACCOUNTS = driver.Kind(0x4D656D41, 14, Path(__file__).with_suffix(".sql"))

#: The tables that may be lost: those of an older release are made again.
_PASSING = ("health", "limits", "minutes")


class AccountFile:
    """The file of one home, opened when it is first needed. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._is_writer = False
        self._file_id: tuple[int, int] | None = None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection to a block that is one write transaction. Raises IndexFaults."""
        with self._lock, self._faults(), driver.transaction(connection := self._open(writes=True)):
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection | None]:
        """Give a connection to a block that only reads; None without a file that can be read."""
        with self._lock, self._faults():
            connection = None
            with suppress(IndexMissing, IndexCorrupt):
                connection = self._open(writes=False)
            yield connection

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Name this file in errors. IndexFault alone: a damaged account file is no damaged index.

        It is not moved aside: sessions that were forgotten would return.
        """
        try:
            with driver.faults(self.path):
                yield
        except IndexCorrupt as error:
            self.close()
            hint = f"put the copy of a backup in the place of {self.path}, or move it away"
            raise IndexFault(f"{error.message}; it has what was spent and forgotten", hint=hint) from error

    def _open(self, *, writes: bool) -> Connection:
        """Give a connection to the file that is at the path now."""
        is_replaced = driver.file_id(self.path) != self._file_id
        if self._connection is None or is_replaced or (writes and not self._is_writer):
            self.close()
            open_file = driver.open_writer if writes else driver.open_reader
            try:
                self._connection = open_file(self.path, kind=ACCOUNTS)
            except IndexTooOld:
                self._make_again()
                self._connection = open_file(self.path, kind=ACCOUNTS)
            self._is_writer, self._file_id = writes, driver.file_id(self.path)
        return self._connection

    def _make_again(self) -> None:
        """Make the tables of an older release again; what was spent and forgotten is kept."""
        timeout = driver.BUSY_TIMEOUT_MS / 1000
        connection = library().connect(str(self.path), isolation_level=None, timeout=timeout)
        with closing(connection), driver.transaction(connection):
            for table in _PASSING:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in statements(ACCOUNTS.schema):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {ACCOUNTS.version}")


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """The provider accounts of one index: their rows are in the account file, their names in the index."""

    index: Connection
    file: AccountFile

    def owner(self, provider: str) -> tuple[str, str]:
        """Return the model that this index has at a provider, and the mark of its address and secrets."""
        model, mark = meta.get(self.index, meta.HEALTH_OF, {}).get(provider, ("", ""))
        return model, mark

    def of(self, provider: str) -> str:
        """Name the account that this index has at a provider."""
        return account_id(provider, self.owner(provider)[1])


def account_id(provider: str, mark: str) -> str:
    """Name an account; `mark` tells one set of address and secrets from another, and is none itself."""
    return f"{provider}:{mark}" if mark else provider


def bar_sessions(file: AccountFile, agent: str, paths: Sequence[str], now: float) -> None:
    """Bar sessions of an agent for good; `transcripts_of` leaves them out."""
    with file.writing() as connection:
        connection.executemany(
            "INSERT OR IGNORE INTO forgotten_sessions (agent, path, at) VALUES (?, ?, ?)",
            ((agent, path, now) for path in paths),
        )
