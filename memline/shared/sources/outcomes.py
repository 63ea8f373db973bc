"""Name the outcomes of files in the ledger, and the reasons that go with them."""

from __future__ import annotations

import errno

from memline.shared.values import value

INDEXED = "indexed"
EMPTY = "empty"
SYMLINK = "symlink"
SPECIAL = "special"
TOO_LARGE = "too_large"
NOT_TEXT = "not_text"
UNREADABLE = "unreadable"
BAD_NAME = "bad_name"
FAILED = "failed"
#: The file is not there, or what is there is a folder.
GONE = "removed"


@value
class Problem:
    """Why a file is not in the index."""

    outcome: str
    reason: str


LINK_PROBLEM = Problem(outcome=SYMLINK, reason="symbolic links are never followed")
NAME_PROBLEM = Problem(outcome=BAD_NAME, reason="the name is not valid UTF-8; rename it")


def code(error: OSError) -> str:
    """Return the short name of a system error, e.g. EACCES."""
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


def unreadable(error: OSError) -> Problem:
    """Return the problem of a file or folder that the system does not let us read."""
    return Problem(outcome=UNREADABLE, reason=f"not readable ({code(error)})")
