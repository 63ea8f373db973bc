"""Choose the folders to watch: every change of a memory is seen, and no ignored folder costs a watch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from memline.shared.sessions.transcripts import Transcripts
from memline.shared.sources.paths import MemoryPaths, is_ignored_folder

#: Watches for one tree, each with a thread. A tree that would need more, because it has ignored folders in
#: very many places, is watched as a whole with them.
_MAX_SPLIT = 100


class WatchedFolder(NamedTuple):
    """A folder to watch; `recursive` with everything below it."""

    path: str
    recursive: bool


#: Files whose changes are watched for: the notes of a workspace and of `extraPaths`, or transcripts.
WatchedFiles = MemoryPaths | Transcripts


def folders_of(files: WatchedFiles) -> frozenset[WatchedFolder]:
    """Return the folders to watch, as they are on the disk now; links are not followed.

    A tree of notes is watched as a whole where it holds no ignored folder (`node_modules`, `.git` …), else
    folder by folder; the folders of transcripts without those inside them. Of a file, and of what does not
    exist, the nearest folder above is watched: it reports both.
    """
    if isinstance(files, Transcripts):
        paths = (
            path if _is_folder(path) else _nearest_folder(os.path.dirname(path)) for path in files.folders()
        )
        return frozenset(WatchedFolder(path=path, recursive=False) for path in paths)
    chosen = set[WatchedFolder]()
    if files.memory.path != str(files.workspace):
        chosen.add(WatchedFolder(path=_nearest_folder(files.workspace), recursive=False))
    for root in (files.memory, *files.extras):
        if _is_folder(root.path):
            chosen |= _tree(root.path)
        else:
            chosen.add(WatchedFolder(path=_nearest_folder(os.path.dirname(root.path)), recursive=False))
    # Files in both of two roots are reported twice, which is once.
    return frozenset(chosen)


#: File systems whose every change the kernel of this host makes, and so tells of. Of others (NFS, SMB, 9p,
#: virtiofs, FUSE) a change by another host is not told.
_LOCAL = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs"}
    | {"xfs", "zfs"}
)


def are_local(folders: Iterable[WatchedFolder], table: str = "/proc/self/mountinfo") -> bool:
    """Tell whether all that is in these folders is on disks of this host; False where that cannot be told."""
    try:
        with Path(table).open(encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [_mount(line) for line in lines]
    except (OSError, IndexError):
        return False
    for folder in folders:
        path = os.path.realpath(folder.path)
        inside = [kind for point, kind in mounts if folder.recursive and _is_below(point, path)]
        # The last of the longest: a later mount hides an earlier one.
        around = [(len(point), at, kind) for at, (point, kind) in enumerate(mounts) if _is_below(path, point)]
        if not around or not {max(around)[2], *inside} <= _LOCAL:
            return False
    return True


def _mount(line: str) -> tuple[str, str]:
    """Read where a line of mountinfo (`man proc`) mounts, and the kind of file system."""
    before, _, after = line.partition(" - ")
    point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])
    return point, after.split()[0]


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _tree(root: str) -> set[WatchedFolder]:
    folders: list[str] = []
    todo = [root]
    #: Folders with an ignored one somewhere below.
    split: set[str] = set()
    while todo:
        folder = todo.pop()
        folders.append(folder)
        try:
            with os.scandir(folder) as entries:
                inner = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            # Gone, or not to be listed: the walk of discovery reports it; there is nothing to watch in it.
            continue
        kept = [entry.path for entry in inner if not is_ignored_folder(entry.name)]
        todo += kept
        while len(kept) < len(inner) and folder not in split:
            split.add(folder)
            folder = folder if folder == root else os.path.dirname(folder)
    chosen = {
        WatchedFolder(path=folder, recursive=folder not in split)
        for folder in folders
        if folder == root or os.path.dirname(folder) in split
    }
    return chosen if len(chosen) <= _MAX_SPLIT else {WatchedFolder(path=root, recursive=True)}


def _nearest_folder(path: str) -> str:
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
