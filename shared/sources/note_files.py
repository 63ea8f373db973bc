"""Make whole note files: the way in which an import writes to a workspace.

Every folder on the way is opened without following links. A file appears under its name at once and whole,
and one that is there is never touched.
"""

from __future__ import annotations

import os
from contextlib import suppress

from memline.shared.errors import PathNotAllowed
from memline.shared.sources.safe_open import open_folder

#: The end of the name under which a file is written before it has its own; no note ends so.
_PART = ".part"


def create(root: str, relative: str, content: bytes, *, mtime_ns: int = 0) -> bool:
    """Make the file `relative` below the folder `root`; False when something has that name already.

    Folders that are missing are made. `mtime_ns`: the time it is stamped with; 0 for now. Raises
    PathNotAllowed (a link is in the way) and OSError.
    """
    *folders, name = parts = relative.split("/")
    if "\0" in relative or any(part in ("", ".", "..") for part in parts):
        raise PathNotAllowed(f"{relative!r} is not a path below its folder")
    folder = open_folder(root, folders, make=True)
    try:
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            return False
        part = f".{name}{_PART}"
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        opened = os.open(part, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(opened, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if mtime_ns:
                os.utime(part, ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)
            # Unlike a rename, a link never takes the place of a file that came meanwhile.
            os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            return True
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=folder)
    finally:
        os.close(folder)
