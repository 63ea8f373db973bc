"""Copy a database of the home into a file while it is in use, and put such a copy where none is.

`VACUUM INTO` reads one moment of the database, so no writer waits and nothing that was deleted comes along. A
copy never takes the place of a file that is there: a process that has that file open would go on writing to
the one that is gone, and would take the WAL beside it for its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import Connection

from memline.shared.errors import IndexCorrupt, IndexFault, IndexNotOurs, IndexUnwritable
from memline.shared.index import driver
from memline.shared.index.driver import faults, scalar
from memline.shared.index.rows import Chunk, FileRow
from memline.shared.sessions.said import Counts, TranscriptFacts
from memline.shared.sources.outcomes import INDEXED
from memline.shared.sources.paths import SESSIONS
from memline.shared.sqlite import SCHEMA, library, statements

#: What SQLite keeps beside a database file.
COMPANIONS = ("-wal", "-shm", "-journal")


def copy_out(source: Connection, target: Path) -> int:
    """Write a database as it is at this moment to `target` (mode 0600) and return its bytes.

    A file that is there stays until the new one is whole. Raises IndexFaults.
    """
    with private_file(target) as part, faults(target, written=target):
        source.execute("VACUUM INTO ?", (str(part),))
    return target.stat().st_size


@contextmanager
def private_file(target: Path, *, replaces: bool = True) -> Iterator[Path]:
    """Give the path of a new empty file (mode 0600) that takes the place of `target` when the block is over.

    When the block raises, `target` is as it was. A link to it stays one. Without `replaces` a file that is at
    `target` by then stays, and FileExistsError is raised.
    """
    target = Path(os.path.realpath(target))
    if target.exists() and not target.is_file():
        raise IndexUnwritable(f"{target} is not a file", hint="name another one")
    try:
        opened, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        os.close(opened)
        part = Path(name)
        try:
            yield part
            settle(part, target, replaces=replaces)
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError:
        raise
    except OSError as error:
        raise IndexUnwritable(f"cannot write {target}: {error.strerror or error}") from error


def settle(part: Path, target: Path, *, replaces: bool = True) -> None:
    """Give a finished file its name, with both on the disk. No connection may have it open."""
    for path, act in ((part, os.replace if replaces else os.link), (target.parent, None)):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
        if act is not None:
            act(part, target)


@contextmanager
def opened(path: Path, kind: driver.Kind = driver.INDEX) -> Iterator[Connection]:
    """Open a copy that may be damaged or hostile, to read it, once it was checked.

    Raises IndexNotOurs, IndexTooNew, IndexTooOld and IndexCorrupt.
    """
    if not path.is_file():
        raise IndexNotOurs(f"{path} is not a file", hint="name a file that memline backup has written")
    try:
        with faults(path):
            connection = driver.connect_read_only(path)
            try:
                driver.refuse_foreign(connection, path, kind)
                _check(connection, path)
            except BaseException:
                connection.close()
                raise
    except IndexFault as error:
        # The words are about an index in use, with what mends that.
        words = error.message.replace(f"the index {path}", str(path))
        raise type(error)(f"{words}; nothing was changed", hint="name another backup") from error
    with closing(connection), faults(path):
        yield connection


def _check(connection: Connection, path: Path) -> None:
    if not scalar(connection, "PRAGMA user_version"):
        raise IndexNotOurs(f"{path} is not a Memline index")
    connection.execute("PRAGMA cell_size_check = ON")
    if (said := scalar(connection, "PRAGMA integrity_check")) != "ok":
        raise IndexCorrupt(f"{path} is damaged: {said}")
    # A view or a trigger is a program that the file would run here.
    programs = "SELECT name, sql FROM sqlite_master WHERE type IN ('view', 'trigger')"
    with closing(library().connect(":memory:")) as empty:
        for statement in statements(SCHEMA):
            empty.execute(statement)
        ours = {*empty.execute(programs)}
    for name, sql in connection.execute(programs):
        if (name, sql) not in ours:
            raise IndexNotOurs(f"{path} has {name!r}, which no index of Memline has")


def sessions_in(source: Connection) -> Iterator[FileRow]:
    """Yield the sessions of an index, to be read again where their transcript is still there."""
    files = source.execute(
        "SELECT id, path, mtime_ns, observed_ns, chunking, first_day, last_day FROM files"
        " JOIN transcripts ON file_id = id WHERE source = ? AND outcome = ?",
        (SESSIONS, INDEXED),
    )
    for file_id, path, mtime_ns, observed_ns, chunking, first, last in files.fetchall():
        rows = source.execute(
            "SELECT start_line, end_line, heading, text FROM chunks WHERE file_id = ? ORDER BY ordinal",
            (file_id,),
        )
        names = ("start_line", "end_line", "heading", "text")
        yield FileRow(
            path=path,
            source=SESSIONS,
            outcome=INDEXED,
            mtime_ns=mtime_ns,
            observed_ns=observed_ns,
            chunking=chunking,
            chunks=tuple(Chunk(**dict(zip(names, row, strict=True))) for row in rows),
            transcript=TranscriptFacts(counts=Counts(first_day=first, last_day=last)),
        )


def put_in_place(source: Connection, target: Path) -> bool:
    """Copy a database to a path where none is; False when there is one by then.

    Killed half-way it leaves a hidden file, and nothing at `target`.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with private_file(target, replaces=False) as part, faults(target, written=target):
            source.execute("VACUUM INTO ?", (str(part),))
            if not target.exists():
                # SQLite would take the WAL of an index that was deleted for that of the new one.
                for suffix in COMPANIONS:
                    Path(f"{target}{suffix}").unlink(missing_ok=True)
    except FileExistsError:
        return False
    return True
