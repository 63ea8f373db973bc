"""Open a file without following a link anywhere below a trusted folder.

Every folder on the way is opened relative to the one before (`dir_fd`, O_NOFOLLOW), so that another process
cannot swap a folder for a link between the check and the open.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from memline.shared.errors import PathNotAllowed
from memline.shared.sources.outcomes import FAILED, GONE, LINK_PROBLEM, Problem, problem_of, unreadable

#: O_PATH (Linux) lets us pass folders that may be entered but not listed.
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: O_NONBLOCK: a FIFO that takes a file's place between the check and the open must not block us.
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileRefused(PathNotAllowed):
    """The file is gone, not a regular file, behind a link, or not readable; `problem` says which."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def open_regular(root: str, relative: str) -> int:
    """Open the regular file at `relative` below the trusted folder `root` for reading; return its descriptor.

    The caller closes it. Raises `FileRefused`, also for a path that leaves the root; never blocks.
    """
    try:
        with folder_of(root, relative) as (folder, name):
            return open_checked(name, os.O_RDONLY, folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileRefused(Problem(outcome=GONE, reason="gone from the disk")) from error
    except OSError as error:
        is_link = error.errno in (errno.ELOOP, errno.EMLINK)
        raise FileRefused(LINK_PROBLEM if is_link else unreadable(error)) from error
    except ValueError as error:
        # A name that the system's encoding cannot express; no such file can exist.
        raise FileRefused(Problem(outcome=FAILED, reason="not a possible file name")) from error


@contextmanager
def folder_of(root: str, relative: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Open the folder of a path below the trusted folder `root`, following no link.

    Gives its descriptor, which is closed when the block is over, and the name of the file in it. With `make`,
    folders that are missing are made. Raises FileRefused, also for a path that leaves the root, and OSError.
    """
    *parts, name = relative.replace(os.sep, "/").split("/")
    if "\0" in relative or any(part in ("", ".", "..") for part in (*parts, name)):
        raise FileRefused(Problem(outcome=FAILED, reason="not a path below its folder"))
    # The root itself is trusted: it may be reached through links.
    folder = os.open(root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            # The check gives the reason; O_NOFOLLOW keeps the promise when the part changes after it.
            if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
                raise FileRefused(LINK_PROBLEM)
            inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder, name
    finally:
        os.close(folder)


def open_checked(name: str, flags: int, folder: int) -> int:
    """Open a regular file of an open folder; return its descriptor. Raises FileRefused and OSError."""
    # Checked first, because opening a device may do something; what was opened counts.
    try:
        _refuse_irregular(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    opened = os.open(name, flags | _FILE_FLAGS, 0o666, dir_fd=folder)
    try:
        _refuse_irregular(os.fstat(opened))
    except BaseException:
        os.close(opened)
        raise
    return opened


def _refuse_irregular(status: os.stat_result) -> None:
    if problem := problem_of(status):
        raise FileRefused(problem)
