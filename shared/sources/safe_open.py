"""Opening a file without following a link anywhere below a trusted folder.

Where the system allows it, every folder on the way is opened relative to the one before (`dir_fd`,
O_NOFOLLOW), so that nobody can swap a folder for a link between the check and the open. Elsewhere every part
is looked at first, and what was opened must be what was looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence

from shared.errors import PathNotAllowed
from shared.sources.outcomes import FAILED, GONE, LINKED, SPECIAL, Problem, unreadable

#: Whether files can be opened relative to an open folder (POSIX).
HAS_DIR_FD = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")

#: O_PATH lets us pass folders that may be entered but not listed. By `getattr`: each system has its own.
_FOLDER_FLAGS = (
    getattr(os, "O_PATH", os.O_RDONLY)
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)

#: O_NONBLOCK: a FIFO that takes a file's place between the look and the open must not block us.
_FILE_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

#: Windows: junctions and other reparse points lead elsewhere without being symbolic links.
_REPARSE_POINT = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)


class FileRefused(PathNotAllowed):
    """The file is gone, no regular file, behind a link, or not readable; `problem` says which."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def open_regular(root: str, relative: str) -> int:
    """A file descriptor of the regular file at `relative` below the trusted folder `root`, for reading.

    The caller closes it. Raises `FileRefused`, also for a path that leaves the root; never blocks.
    """
    parts = relative.replace(os.sep, "/").split("/")
    if "\0" in relative or any(part in ("", ".", "..") for part in parts):
        raise FileRefused(Problem(outcome=FAILED, reason="not a path below its folder"))
    try:
        return _open_step_by_step(root, parts) if HAS_DIR_FD else _open_after_look(root, parts)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileRefused(Problem(outcome=GONE, reason="gone from the disk")) from error
    except OSError as error:
        is_link = error.errno in (errno.ELOOP, errno.EMLINK)
        raise FileRefused(LINKED if is_link else unreadable(error)) from error
    except ValueError as error:
        # A name that the system's encoding cannot say; no such file can exist.
        raise FileRefused(Problem(outcome=FAILED, reason="no possible file name")) from error


def open_folder(root: str, parts: Sequence[str], *, make: bool = False) -> int:
    """A descriptor of the folder at `parts` below the trusted folder `root`, no link on the way.

    With `make`, folders that are missing are made. The caller closes it. Raises FileRefused and OSError.
    """
    # The root itself is trusted: it may be reached through links.
    folder = os.open(root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            # The look gives the reason; O_NOFOLLOW keeps the promise when the part changes after it.
            _refuse_link(os.stat(part, dir_fd=folder, follow_symlinks=False))
            inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
    except BaseException:
        os.close(folder)
        raise
    return folder


def _open_step_by_step(root: str, parts: list[str]) -> int:
    folder = open_folder(root, parts[:-1])
    try:
        refuse_irregular(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False))
        opened = os.open(parts[-1], _FILE_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
    return _checked(opened, None)


def _open_after_look(root: str, parts: list[str]) -> int:
    path = root
    for part in parts[:-1]:
        path = os.path.join(path, part)
        _refuse_link(os.lstat(path))
    path = os.path.join(path, parts[-1])
    look = os.lstat(path)
    refuse_irregular(look)
    return _checked(os.open(path, _FILE_FLAGS), look)


def _checked(opened: int, look: os.stat_result | None) -> int:
    """The descriptor, if it is a regular file and the one that was looked at."""
    try:
        status = os.fstat(opened)
        refuse_irregular(status)
        if look is not None and not os.path.samestat(look, status):
            raise FileRefused(Problem(outcome=FAILED, reason="replaced while it was opened"))
    except BaseException:
        os.close(opened)
        raise
    return opened


def _refuse_link(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode) or getattr(status, "st_file_attributes", 0) & _REPARSE_POINT:
        raise FileRefused(LINKED)


def refuse_irregular(status: os.stat_result) -> None:
    """Raises `FileRefused` for a link, a folder, a FIFO or a device."""
    _refuse_link(status)
    if stat.S_ISDIR(status.st_mode):
        raise FileRefused(Problem(outcome=GONE, reason="a folder has taken its place"))
    if not stat.S_ISREG(status.st_mode):
        raise FileRefused(Problem(outcome=SPECIAL, reason="no regular file"))
