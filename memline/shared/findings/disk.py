"""Tell whether an index can be stored where it is: the right to write there, and the bytes that are free."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from memline.shared.config.schema import AgentSettings

#: Free bytes below which a backfill may fill the disk, and below which nothing more can be stored.
LOW_DISK_BYTES, FULL_DISK_BYTES = 200 * 1024 * 1024, 1024 * 1024

#: Where free bytes are low on a large disk: below this share of it and this many bytes.
LOW_DISK_SHARE, LOW_LARGE_DISK_BYTES = 0.02, 2 * 1024**3

FREE_SPACE = "free space there, or use --home DIR"


def trouble(settings: AgentSettings) -> tuple[str, str] | None:
    """Say why nothing can be stored for an agent, and what ends that; None where it can."""
    folder = index_folder(settings)
    # The folders of the index and of what is spent, and these files.
    files = settings.index_path, settings.account_path
    places = [folder, _there(files[1].parent), *map(str, filter(Path.exists, files))]
    for place in (place for place in places if not os.access(place, os.W_OK)):
        if hasattr(os, "statvfs") and os.statvfs(place).f_flag & os.ST_RDONLY:
            return f"the disk of {place} is read-only", "make it writable, or use --home DIR"
        quoted, owner = shlex.quote(place), os.stat(place).st_uid
        # As after a restore, or one run, by root.
        action = f"chmod u+w {quoted}" if owner == os.geteuid() else f"sudo chown {os.geteuid()} {quoted}"
        return f"{place} is not writable", action
    free = scarce_bytes(folder)
    if free is not None and free < FULL_DISK_BYTES:
        return f"the disk of {folder} is full: nothing can be stored", FREE_SPACE
    return None


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
