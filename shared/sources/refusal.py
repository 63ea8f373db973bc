"""Looking at one path that a walk listed only to say why it cannot be indexed."""

from __future__ import annotations

import os
import re
import stat

from shared.sources.outcomes import LINKED, MISNAMED, Problem, unreadable
from shared.sources.scope import Scope, is_storable

#: What `scope.printable` makes of bytes that are not UTF-8, and of backslashes beside them.
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})|\\\\")


def problem_at(scope: Scope, path: str) -> Problem | None:
    """The problem of a ledger path that `Scope.locate` or reading finds nothing for; None when it is gone.

    Links and folders have no Markdown name, and a name that is not UTF-8 is not the one in the ledger, so
    they cannot be read to learn what they are. Nothing outside the scope is looked at.
    """
    for name in (path, unprintable(path)):
        absolute = os.path.normpath(os.path.join(scope.workspace, name))
        try:
            if not scope.concerns_folder(absolute):
                continue
            status = os.lstat(absolute)
        except (OSError, ValueError):
            continue
        if not is_storable(absolute):
            return MISNAMED
        if stat.S_ISLNK(status.st_mode):
            return LINKED
        if stat.S_ISDIR(status.st_mode):
            return _folder_problem(absolute)
    return None


def _folder_problem(folder: str) -> Problem | None:
    try:
        os.scandir(folder).close()
    except OSError as error:
        return unreadable(error)
    return None


def unprintable(path: str) -> str:
    """The name whose printable form is `path`, if it is one."""
    return os.fsdecode(
        _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"\\", os.fsencode(path))
    )
