"""Make note files, and take lines out of them: how an import and `forget` write to a workspace.

Every folder on the way is opened without following links. A file appears under its name at once and whole,
and one that is there is never touched.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress

from memline.shared.sources.safe_open import folder_of, open_checked

#: Lines with their ends, as `shared.sources.reading` counts them.
_LINES = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+$")

#: The end of the name under which a file is written before it has its own; no note ends so.
_PART = ".part"


def create(root: str, relative: str, content: bytes) -> bool:
    """Make the file `relative` below the folder `root`; False when something has that name already.

    Folders that are missing are made. Raises PathNotAllowed (a link is in the way) and OSError.
    """
    with folder_of(root, relative, make=True) as (folder, name):
        part = _write_part(folder, name, content)
        try:
            # Unlike a rename, a link never takes the place of a file that is there.
            os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        finally:
            os.unlink(part, dir_fd=folder)
    return True


def _write_part(folder: int, name: str, content: bytes, mode: int = 0o666) -> str:
    """Write a file beside the one it becomes, and return its name."""
    part = f".{name}{_PART}"
    with suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, mode, dir_fd=folder), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return part


def remove_lines(root: str, relative: str, first: int, last: int, expected: bytes) -> bool:
    """Take lines out of a note (1-based, inclusive), or delete it when nothing is left of it.

    False when the note no longer has the bytes `expected`: it changed, and nothing is done. Raises
    PathNotAllowed and OSError.
    """
    with folder_of(root, relative) as (folder, name):
        opened = open_checked(name, os.O_RDWR, folder)
        with os.fdopen(opened, "rb") as file:
            with suppress(OSError):
                # Entries are added under the same lock (`append`).
                fcntl.flock(opened, fcntl.LOCK_EX)
            status = os.fstat(opened)
            if file.read() != expected:
                return False
            lines = _LINES.findall(expected)
            kept = b"".join([*lines[: first - 1], *lines[last:]])
            if not kept.strip():
                os.unlink(name, dir_fd=folder)
                return True
            part = _write_part(folder, name, kept, 0o600)
            os.chmod(part, status.st_mode & 0o7777, dir_fd=folder)
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            return True
