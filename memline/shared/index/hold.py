"""Let one process at a time dispatch an index: a lock on `<index>.lock`, whose text says who has it.

Any process may read, chunk and store files. Only the holder of this lock leases texts and sends them. The
system releases the lock when a process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from memline.shared.config.config_file import for_owner
from memline.shared.errors import IndexUnwritable

#: Tries for a lock, and seconds between two: a process that asks for the holder has it for a moment.
TRIES, TRY_EVERY_S = 5, 0.01


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The process that dispatches an index."""

    pid: int
    #: Its command: `up`, `store` or `index`.
    kind: str
    #: When it took the lock (seconds since the epoch). It has read its settings before.
    started: float


class Hold:
    """The lock of an index; it ends with `close`, or with the process."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def close(self) -> None:
        self._file.truncate(0)
        self._file.close()


def hold(index: Path, kind: str, now: float) -> Hold | None:
    """Take the lock of an index for this process; None while another process has it.

    Raises IndexUnwritable.
    """
    path = lock_of(index)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = open(path, "a+b", buffering=0, opener=for_owner)  # noqa: SIM115
    except OSError as error:
        raise IndexUnwritable(f"cannot write {path}: {error.strerror}", hint="set MEMLINE_HOME") from error
    for _ in range(TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(TRY_EVERY_S)
            continue
        file.truncate(0)
        file.write(msgspec.json.encode(Holder(pid=os.getpid(), kind=kind, started=now)))
        return Hold(file)
    file.close()
    return None


def holder_of(index: Path) -> Holder | None:
    """Return which process dispatches an index; None when none does."""
    with suppress(OSError, msgspec.DecodeError), lock_of(index).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return msgspec.json.decode(file.read(), type=Holder)
    return None


def lock_of(index: Path) -> Path:
    """Name the lock of an index."""
    return index.with_name(f"{index.name}.lock")
