"""Move a damaged file out of the way."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from sqlite3 import Connection

from memline.shared.errors import IndexCorrupt, IndexUnwritable
from memline.shared.index.driver import file_id


def move_aside(path: Path, now: float, damaged: tuple[int, int] | None) -> Path | None:
    """Rename a damaged index (with its WAL files) and return its new name. Raises IndexUnwritable.

    `damaged` is the `file_id` of what was found damaged. Of several processes that find it one moves it: the
    others get None, since what is at the path now is not damaged. Never removed: the notes are the truth,
    and the index is built again from them.
    """
    with _locked_folder(path):
        return _rename_aside(path, now) if file_id(path) == damaged else None


def connect_anew(path: Path, now: float, connect: Callable[[Path], Connection]) -> Connection:
    """Connect to a small file that was found damaged, emptied after a copy was put aside.

    Raises IndexUnwritable. Of several processes that find it one does so; the others wait, and find it whole.
    It is emptied and not renamed: a process that still has the old file open would take journal and WAL of a
    new file at the same path for its own, and roll them back.
    """
    with _locked_folder(path):
        try:
            return connect(path)
        except IndexCorrupt:
            aside = _name_aside(path, now)
            try:
                aside.touch(mode=0o600)
                aside.write_bytes(path.read_bytes())
                os.truncate(path, 0)
            except OSError as error:
                raise _cannot_move(path, error) from error
            return connect(path)


@contextmanager
def _locked_folder(path: Path) -> Iterator[None]:
    """Let one process at a time put another file in the place of a damaged one."""
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise _cannot_move(path, error) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _rename_aside(path: Path, now: float) -> Path:
    aside = _name_aside(path, now)
    try:
        for suffix in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    except OSError as error:
        raise _cannot_move(path, error) from error
    return aside


def _name_aside(path: Path, now: float) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    ends = chain([""], (f"-{number}" for number in count(2)))
    names = (path.with_name(f"{path.name}.corrupt-{stamp}{end}") for end in ends)
    return next(name for name in names if not name.exists())


def _cannot_move(path: Path, error: OSError) -> IndexUnwritable:
    return IndexUnwritable(
        f"the index {path} is damaged and cannot be moved aside: {error.strerror}",
        hint=f"move {path} away yourself, then run: memline index",
    )
