"""Adding to the end of a memory file: the only way in which Memline writes to a workspace.

Nothing that stands in a file is ever changed. Every component of the path is opened without following links,
a lock keeps two writers from mixing their lines, and a file that an editor replaces meanwhile is not written
to under its old name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from shared.clock import Clock, SystemClock
from shared.errors import PathNotAllowed
from shared.sources.reading import MAX_FILE_BYTES
from shared.sources.safe_open import HAS_DIR_FD, open_folder, refuse_irregular

_FLAGS = (
    os.O_RDWR
    | os.O_APPEND
    | getattr(os, "O_NOFOLLOW", 0)
    # A FIFO in the place of the file must not block us.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)

#: Seconds to wait for another writer, and how often to ask.
LOCK_PATIENCE_S = 5.0
_LOCK_EVERY_S = 0.02

#: How often the file may be replaced under us before we give up.
_ATTEMPTS = 5

#: UTF-16 and UTF-32: UTF-8 behind these would be noise.
_OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


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
    #: Bytes of the file now; 0 when nothing was added.
    size: int = 0


def append(
    root: str,
    relative: str,
    make: Callable[[str], str],
    *,
    max_bytes: int = MAX_FILE_BYTES,
    clock: Clock | None = None,
) -> Appended:
    """Add what `make` makes of the present text to the end of the file `relative` below the folder `root`.

    `make` gives the lines to add, or an empty text for nothing; it is called while the file is locked, so two
    writers see each other's lines, and may be called more than once. The file, and a missing folder above it,
    are made when there is something to add; it never grows beyond `max_bytes`. Raises NotAppended.
    """
    *folders, name = parts = relative.split("/")
    if "\0" in relative or any(part in ("", ".", "..") for part in parts):
        raise NotAppended(f"{relative!r} is no path below its folder")
    if not HAS_DIR_FD:
        raise NotAppended(f"{relative} cannot be added to safely on this system", hint="write it by hand")
    try:
        for _ in range(_ATTEMPTS):
            try:
                added = _attempt(root, folders, name, make, max_bytes, clock or SystemClock(), is_new=False)
            except FileNotFoundError:
                if not make("").strip("\n"):
                    return Appended(path=relative)
                added = _attempt(root, folders, name, make, max_bytes, clock or SystemClock(), is_new=True)
            if added is not None:
                return Appended(path=relative, start_line=added[0], end_line=added[1], size=added[2])
    except PathNotAllowed as error:
        raise NotAppended(f"{relative} cannot be added to: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise NotAppended(
            f"{relative} cannot be added to: {_why(error)}", hint=f"check {os.path.join(root, relative)}"
        ) from error
    raise NotAppended(f"{relative} cannot be added to: it is replaced all the time", hint="try again later")


#: First line, last line, and bytes of the file.
_Added = tuple[int, int, int]


def _attempt(
    root: str,
    folders: list[str],
    name: str,
    make: Callable[[str], str],
    max_bytes: int,
    clock: Clock,
    *,
    is_new: bool,
) -> _Added | None:
    """Add to the file; None when it was replaced by another one meanwhile."""
    folder = open_folder(root, folders, make=is_new)
    try:
        with suppress(FileNotFoundError):
            # Looked at first, because opening a device may do something; what was opened counts.
            refuse_irregular(os.stat(name, dir_fd=folder, follow_symlinks=False))
        opened = os.open(name, _FLAGS | os.O_CREAT * is_new, 0o666, dir_fd=folder)
        try:
            refuse_irregular(os.fstat(opened))
            _lock(opened, clock)
            if not _is_still(opened, name, folder):
                return None
            return _append(opened, make, max_bytes)
        finally:
            os.close(opened)
    finally:
        os.close(folder)


def _lock(opened: int, clock: Clock) -> None:
    import fcntl

    until = clock.now() + LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                # A file system without locks: O_APPEND alone keeps additions apart.
                return
        if clock.now() > until:
            raise NotAppended("another program keeps it locked", hint="try again later")
        clock.sleep(_LOCK_EVERY_S)


def _is_still(opened: int, name: str, folder: int) -> bool:
    """Whether the name leads to what was opened: an editor may have put another file in its place."""
    try:
        return os.path.samestat(os.fstat(opened), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _append(opened: int, make: Callable[[str], str], max_bytes: int) -> _Added:
    size = os.fstat(opened).st_size
    _check_size(size, max_bytes)
    held = os.pread(opened, size, 0)
    if held.startswith(_OTHER_ENCODINGS):
        raise NotAppended("it is not UTF-8", hint="save it as UTF-8, then try again")
    before = held.decode("utf-8", "replace")
    made = make(before).rstrip("\n")
    added = made.lstrip("\n")
    if not added:
        return (0, 0, 0)
    gap = "" if not before or before.endswith(("\n", "\r")) else "\n"
    content = f"{gap}{made}\n".encode("utf-8", "replace")
    _check_size(size + len(content), max_bytes)
    written = 0
    try:
        while written < len(content):
            written += os.write(opened, content[written:])
        os.fsync(opened)
    except OSError:
        # Half an entry is worse than none. Who takes no locks may have added something behind it meanwhile.
        if os.fstat(opened).st_size == size + written:
            os.ftruncate(opened, size)
        raise
    # A line ends at "\n", "\r\n" or "\r", as in `shared.sources.reading`.
    first = (before + gap).replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    first += len(made) - len(added)
    return (first, first + added.count("\n"), size + len(content))


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise NotAppended(
            f"it would have {size} bytes, {max_bytes} are allowed",
            hint="say it shorter, or let a person tidy the note up",
        )


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
        return "a symbolic link or a file is in its way"
    return (error.strerror or str(error)).lower()
