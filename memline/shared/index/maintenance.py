"""Treat an index as a file: copy it, put a copy in its place, move it aside, take what was deleted out of it.

`VACUUM INTO` reads one moment of a database, so no writer waits and nothing that was deleted comes along. A
copy never takes the place of an index: a process that has it open would go on writing to the one that is
gone.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection

from memline.shared.errors import IndexCorrupt, IndexFault, IndexUnwritable
from memline.shared.index import chunks, driver
from memline.shared.index.driver import faults, scalar, transaction
from memline.shared.sqlite import library

#: What SQLite keeps beside a database file.
COMPANIONS = ("-wal", "-shm", "-journal")

#: What no chunk needs: also texts that were taken out of a note by hand, whose vectors are cached.
_UNUSED = "text_hash NOT IN (SELECT text_hash FROM chunks)"


def copy_out(source: Connection, target: Path, *, replaces: bool = True) -> bool:
    """Write a database as it is at this moment to `target` (mode 0600).

    A file that is there stays until the copy is whole; without `replaces` it stays for good, and False is
    returned. Killed half-way this leaves a hidden file beside it. Raises IndexUnwritable.
    """
    target = Path(os.path.realpath(target))
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # SQLite would take the WAL of an index that was deleted for that of the new one.
        for suffix in COMPANIONS if not (replaces or target.exists()) else ():
            Path(f"{target}{suffix}").unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", suffix=".part", delete=False
        ) as part:
            try:
                source.execute("VACUUM INTO ?", (part.name,))
                os.fsync(part.fileno())
                if replaces:
                    os.replace(part.name, target)
                else:
                    os.link(part.name, target)
            finally:
                Path(part.name).unlink(missing_ok=True)
    except FileExistsError:
        return False
    except (OSError, library().Error) as error:
        raise IndexUnwritable(f"cannot write {target}: {error}") from error
    return True


@contextmanager
def opened(path: Path, kind: driver.Kind = driver.INDEX) -> Iterator[Connection]:
    """Open a copy that may be damaged, to read it, once it was checked.

    Raises IndexFault, IndexTooOld and IndexCorrupt.
    """
    try:
        if not path.is_file() or not path.stat().st_size:
            raise IndexFault(f"{path} is no copy of an index" if path.exists() else f"{path}: no such file")
        with closing(driver.open_reader(path, kind=kind)) as connection:
            with faults(path):
                connection.execute("PRAGMA cell_size_check = ON")
                if (said := scalar(connection, "PRAGMA integrity_check")) != "ok":
                    raise IndexCorrupt(f"{path} is damaged: {said}")
            yield connection
    except IndexFault as error:
        # The words are about an index in use, with what mends that.
        words = error.message.replace(f"the index {path}", str(path))
        raise type(error)(f"{words}; nothing was changed", hint="name another backup") from error


def move_aside(path: Path, now: float, damaged: tuple[int, int] | None) -> Path | None:
    """Rename a damaged index (with its WAL files) and return its new name. Raises IndexUnwritable.

    `damaged` is the `file_id` of what was found damaged; None is returned when another process has moved it
    meanwhile. Never removed: what can be read of it is taken over.
    """
    if driver.file_id(path) != damaged:
        return None
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    try:
        # First its WAL: a new file at the path would take it for its own.
        for suffix in COMPANIONS:
            with suppress(FileNotFoundError):
                Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
        path.rename(aside)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IndexUnwritable(
            f"the index {path} is damaged and cannot be moved aside: {error.strerror}",
            hint=f"move {path} away yourself, then run: memline index",
        ) from error
    return aside


def drop_vectors(connection: Connection) -> tuple[int, list[str]]:
    """Delete the vectors that no chunk needs; returns how many, and the open batches with them."""
    with transaction(connection):
        tokens = connection.execute(
            f"SELECT DISTINCT lease FROM vectors WHERE {_UNUSED} AND lease IN"
            " (SELECT token FROM batches WHERE state <> 'closed') ORDER BY lease"
        ).fetchall()
        removed = connection.execute(f"DELETE FROM vectors WHERE {_UNUSED}").rowcount
    return removed, [token for (token,) in tokens]


def erase(connection: Connection, *, wait_s: float = 30.0) -> None:
    """Write the whole index anew without what was deleted, and empty its WAL.

    FTS5 keeps deleted words until its segments are merged, and a page that SQLite has split may keep a copy
    of a row. Raises IndexFault when another process reads an old state for longer than that.
    """
    with transaction(connection):
        for table in chunks.FULL_TEXT:
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
    connection.execute("VACUUM")
    until = time.monotonic() + wait_s
    # SQLite waits for readers and writers, but not for the checkpoint of a process that has just written.
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() >= until:
            raise IndexFault(
                "another process reads an old state of the index, so its log cannot be emptied",
                hint="end the other process, then: memline index",
            )
        time.sleep(0.05)
