"""Let one process at a time dispatch an index: a lock on `<index>.lock`, whose text says who has it.

Any process may store files; only the holder of this lock leases texts and sends them. The system releases it
when a process ends, however it ends. `<index>.watch` says in the same way which process follows the files.
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

#: What a process may hold of an index, as the ending of a file name.
DISPATCHER, FOLLOWER, BATCHES = "lock", "watch", "batches"


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The process that dispatches an index, or follows its files."""

    pid: int
    #: Its command: `up`, `store`, `index` or `watch`.
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


def hold(index: Path, kind: str, now: float, *, part: str = DISPATCHER) -> Hold | None:
    """Take a lock of an index for this process; None while another process has it.

    Raises IndexUnwritable.
    """
    path = lock_of(index, part)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = open(path, "a+b", buffering=0, opener=for_owner)  # noqa: SIM115
    except OSError as error:
        raise IndexUnwritable(f"cannot write {path}: {error.strerror}", hint="set MEMLINE_HOME") from error
    for _ in range(TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(msgspec.json.encode(Holder(pid=os.getpid(), kind=kind, started=now)))
            return Hold(file)
        time.sleep(TRY_EVERY_S)
    file.close()
    return None


def lock_of(index: Path, part: str = DISPATCHER) -> Path:
    """Name a lock of an index."""
    return index.with_name(f"{index.name}.{part}")


def holder_of(index: Path, part: str = DISPATCHER) -> Holder | None:
    """Return which process holds a part of an index; None when none does."""
    with suppress(OSError, msgspec.DecodeError), lock_of(index, part).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return msgspec.json.decode(file.read(), type=Holder)
    return None


def holders(index: Path) -> list[Holder]:
    """Return the processes that dispatch an index or follow its files."""
    found = (holder_of(index, DISPATCHER), holder_of(index, FOLLOWER))
    return [*{each.pid: each for each in found if each}.values()]


def has_follower(index: Path) -> bool:
    """Tell whether a process brings changed files into an index."""
    return any(each.kind != "store" for each in holders(index))
