"""Tell whether an index can be stored where it is: the right to write there, and the bytes that are free."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from memline.shared.config.schema import AgentSettings

#: Free bytes below the index under which a backfill may fill the disk.
LOW_DISK_BYTES = 200 * 1024 * 1024

#: And under which nothing more can be stored.
FULL_DISK_BYTES = 1024 * 1024

#: The same of a large disk: below this share of it and this many bytes.
LOW_DISK_SHARE, LOW_LARGE_DISK_BYTES = 0.02, 2 * 1024**3

#: What ends both.
FREE_SPACE = "free space there, or use --home DIR"


def trouble(settings: AgentSettings) -> tuple[str, str] | None:
    """Say why nothing can be stored for an agent, and what ends that; None where it can."""
    folder = index_folder(settings)
    places = _places(settings)
    for place in (place for place, is_writable in places.items() if not is_writable):
        if hasattr(os, "statvfs") and os.statvfs(place).f_flag & os.ST_RDONLY:
            return f"the disk of {place} is read-only", "make it writable, or use --home DIR"
        quoted, owner = shlex.quote(place), os.stat(place).st_uid
        # As after a restore, or one run, by root.
        action = f"chmod u+w {quoted}" if owner == os.geteuid() else f"sudo chown {os.geteuid()} {quoted}"
        return f"{place} is not writable", action
    if is_full(scarce_bytes(folder)):
        return f"the disk of {folder} is full: nothing can be stored", FREE_SPACE
    return None


def mark(settings: AgentSettings) -> tuple[bool, bool, bool]:
    """Return what the rows of the disk depend on, for who asks them again when it changes."""
    free = scarce_bytes(index_folder(settings))
    return free is None, is_full(free), all(_places(settings).values())


def _places(settings: AgentSettings) -> dict[str, bool]:
    """Tell what has to be written, as far as it is there, and whether it can be.

    The folders of the index and of what is spent, and these files.
    """
    files = settings.index_path, settings.account_path
    places = [index_folder(settings), _there(files[1].parent), *map(str, filter(Path.exists, files))]
    return {place: os.access(place, os.W_OK) for place in places}


def is_full(free: int | None) -> bool:
    """Tell whether so little is free that a transaction of vectors does not fit."""
    return free is not None and free < FULL_DISK_BYTES


def scarce_bytes(folder: str) -> int | None:
    """Return how many bytes are free for a user where that is few; None where there is room."""
    if not hasattr(os, "statvfs"):
        return None
    status = os.statvfs(folder)
    free, total = (count * status.f_frsize for count in (status.f_bavail, status.f_blocks))
    is_low = free < LOW_DISK_BYTES or (free < LOW_DISK_SHARE * total and free < LOW_LARGE_DISK_BYTES)
    return free if is_low else None


def index_folder(settings: AgentSettings) -> str:
    """Return the folder of the index; where it is still to be made, the one that it will be in."""
    return _there(settings.index_path.parent)


def _there(folder: Path) -> str:
    while not folder.exists():
        folder = folder.parent
    return str(folder)
