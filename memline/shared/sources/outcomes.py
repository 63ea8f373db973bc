"""Name the outcomes of files and the reasons that go with them."""

from __future__ import annotations

import errno
import os
import stat

import msgspec

INDEXED = "indexed"
EMPTY = "empty"
SYMLINK = "symlink"
SPECIAL = "special"
TOO_LARGE = "too_large"
NOT_TEXT = "not_text"
UNREADABLE = "unreadable"
FAILED = "failed"
#: The file is not there, or what is there is a folder.
GONE = "removed"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a file is not in the index."""

    outcome: str
    reason: str


LINK_PROBLEM = Problem(outcome=SYMLINK, reason="symbolic links are never followed")


def problem_of(status: os.stat_result) -> Problem | None:
    """Return why what has the name of a file cannot be read, as far as its kind says."""
    if stat.S_ISREG(status.st_mode):
        return None
    if stat.S_ISLNK(status.st_mode):
        return LINK_PROBLEM
    if stat.S_ISDIR(status.st_mode):
        return Problem(outcome=GONE, reason="a folder has taken its place")
    return Problem(outcome=SPECIAL, reason="not a regular file")


def mend(outcome: str, file: str) -> str:
    """Say what ends the trouble with a note that could not be read."""
    what = f"let Memline read {file}" if outcome == UNREADABLE else f"make {file} UTF-8 of at most 16 MB"
    return f"{what}, or leave it out by memorySearch.exclude"


def code(error: OSError) -> str:
    """Return the short name of a system error, e.g. EACCES."""
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


def unreadable(error: OSError) -> Problem:
    """Return the problem of a file or folder that the system does not let us read."""
    return Problem(outcome=UNREADABLE, reason=f"not readable ({code(error)})")
