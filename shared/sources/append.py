"""Adding to the end of a memory file: the only way in which Memline writes to a workspace.

Nothing that stands in a file is ever changed. Every component of the path is opened without following links,
and a lock keeps two writers from mixing their lines.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass

from shared.errors import PathNotAllowed
from shared.sources.reading import MAX_FILE_BYTES
from shared.sources.safe_open import open_folder, refuse_irregular

_FLAGS = (
    os.O_RDWR
    | os.O_APPEND
    | getattr(os, "O_NOFOLLOW", 0)
    # A FIFO in the place of the file must not block us.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


class NotAppended(PathNotAllowed):
    """The file cannot be added to; the message says why, and the file is as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What was added; with no lines, nothing was."""

    #: As in the ledger, e.g. `memory/2026-02-03.md`.
    path: str
    #: First and last line of what was added, 1-based; 0 when nothing was.
    start_line: int = 0
    end_line: int = 0


def append(root: str, relative: str, make: Callable[[str], str]) -> Appended:
    """Add what `make` makes of the present text to the end of the file `relative` below the folder `root`.

    `make` gives the lines to add, or an empty text for nothing; it is called while the file is locked, so two
    writers see each other's lines. The file, and a missing folder above it, are made when there is something
    to add. Raises NotAppended.
    """
    *folders, name = parts = relative.split("/")
    if "\0" in relative or any(part in ("", ".", "..") for part in parts):
        raise NotAppended(f"{relative!r} is no path below its folder")
    try:
        try:
            opened = _open(root, folders, name, is_new=False)
        except FileNotFoundError:
            if not make("").strip("\n"):
                return Appended(path=relative)
            opened = _open(root, folders, name, is_new=True)
        try:
            refuse_irregular(os.fstat(opened))
            fcntl.flock(opened, fcntl.LOCK_EX)
            return _append(opened, relative, make)
        finally:
            os.close(opened)
    except PathNotAllowed as error:
        raise NotAppended(f"{relative} cannot be added to: {error.message}") from error
    except OSError as error:
        raise NotAppended(
            f"{relative} cannot be added to: {_why(error)}", hint=f"check {os.path.join(root, relative)}"
        ) from error


def _open(root: str, folders: list[str], name: str, *, is_new: bool) -> int:
    folder = open_folder(root, folders, make=is_new)
    try:
        return os.open(name, _FLAGS | os.O_CREAT * is_new, 0o666, dir_fd=folder)
    finally:
        os.close(folder)


def _append(opened: int, relative: str, make: Callable[[str], str]) -> Appended:
    size = os.fstat(opened).st_size
    if size > MAX_FILE_BYTES:
        raise NotAppended(f"it has {size} bytes, more than a note may have")
    before = os.pread(opened, size, 0).decode("utf-8", "replace")
    added = make(before).strip("\n")
    if not added:
        return Appended(path=relative)
    gap = "" if not before or before.endswith("\n") else "\n"
    content = memoryview(f"{gap}{added}\n".encode("utf-8", "replace"))
    try:
        while content:
            content = content[os.write(opened, content) :]
    except OSError:
        # Half an entry is worse than none; nobody else writes while we hold the lock.
        os.ftruncate(opened, size)
        raise
    first = before.count("\n") + len(gap) + 1
    return Appended(path=relative, start_line=first, end_line=first + added.count("\n"))


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
        return "a symbolic link or a file is in its way"
    return (error.strerror or str(error)).lower()
