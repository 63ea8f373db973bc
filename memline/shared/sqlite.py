"""Choose the SQLite library of this process, and read files of SQL and databases of other programs.

`sqlean`, since many Pythons (all of pyenv's) are built without extension loading; the standard library's
where no wheel of it exists. One library a process: two copies of SQLite on one file drop each other's POSIX
locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from memline.shared.errors import IndexFault
from memline.shared.packages import install_command

#: Seconds that a read of a foreign database waits for its writer.
_WAIT_S = 5.0

#: Bytes 18 and 19 of a database in WAL mode.
_WAL_VERSIONS = b"\x02\x02"


@lru_cache(maxsize=1)
def library() -> Any:
    """Return the DB-API module of this process. Raises IndexFault for one without full-text search."""
    try:
        return import_module("sqlean")
    except ImportError:
        pass
    standard = import_module("sqlite3")
    with closing(standard.connect(":memory:")) as connection:
        if not connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone():
            raise IndexFault(
                f"the SQLite {standard.sqlite_version} of this Python has no full-text search (FTS5)",
                hint=install_command("sqlean.py"),
            )
    return standard


def statements(path: Path) -> Iterator[str]:
    """Split a file of SQL into its statements; those of a trigger stay together."""
    is_complete = library().complete_statement
    statement = ""
    for line in path.read_text("utf-8").splitlines(keepends=True):
        statement += line
        if is_complete(statement):
            yield statement
            statement = ""


def open_foreign(path: Path) -> Connection:
    """Open a database of another program, which may write it meanwhile; not a byte of its files changes.

    A WAL is read through the memory that its writer shares, itself opened for reading alone. Without that
    file (no process has the database open) only a database with an empty WAL is read: SQLite would have to
    make the file. Raises the library's errors.
    """
    uri = path.absolute().as_uri()
    if _size(f"{path}-shm"):
        how = "mode=ro&readonly_shm=1"
    elif _is_wal(path) and not _size(f"{path}-wal"):
        # Nothing is locked: there is no process to be locked out.
        how = "mode=ro&immutable=1"
    else:
        how = "mode=ro"
        if _is_wal(path):
            raise library().OperationalError(
                f"{path} was left with changes that its program has not taken in"
            )
    connection: Connection = library().connect(
        f"{uri}?{how}", uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
    )
    try:
        # Its schema may hold anything; views and triggers of it are not trusted.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def reading_foreign(path: Path) -> Iterator[Connection]:
    """Open a database of another program for a block, all of it as it is at one moment."""
    connection = open_foreign(path)
    try:
        connection.execute("BEGIN")
        yield connection
    finally:
        connection.close()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _is_wal(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(20)[18:] == _WAL_VERSIONS
    except OSError:
        return False
