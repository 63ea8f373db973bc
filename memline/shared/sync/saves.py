"""Tell a search at once that a note was saved: the kernel's own queue, read by the thread that asks.

An observer's thread learns of a save some milliseconds after it ended, and a search in between would miss it.
The kernel has queued the event before the save returns, so a process that reads the queue then knows of it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Collection
from contextlib import suppress

from memline.shared.note_names import is_markdown
from memline.shared.sources.ignoring import IGNORE_FILES
from memline.shared.sources.paths import MemoryPaths, is_ignored_folder
from memline.shared.sync.folders import are_local, folders_of

#: Of `man 7 inotify`: content and names that change, a watched folder that goes, what was lost.
_CHANGES = 0x002 | 0x008 | 0x040 | 0x080 | 0x100 | 0x200 | 0x400 | 0x800
_ONLY_FOLDERS = 0x01000000
_FOLDER, _LOST = 0x40000000, 0x2000 | 0x4000 | 0x8000 | 0x400 | 0x800

#: Files that were saved above which a look at all of them is not much more.
_MANY = 50

#: wd, mask, cookie and length of the name.
_EVENT = struct.Struct("iIII")


class Saves:
    """The kernel's queue of changes of one agent's notes. Use it under a lock."""

    def __init__(
        self, files: MemoryPaths, are_stored: Callable[[Collection[str]], bool] = lambda paths: False
    ) -> None:
        """`are_stored`: tells whether the index has files (absolute paths) just as they are now."""
        self._files = files
        self._are_stored = are_stored
        #: The queue; None while there is none.
        self._queue: int | None = None
        #: Watched folders by the number that the kernel gave them.
        self._folders: dict[int, str] = {}
        self._is_complete = False
        #: Whether this system, or the disk, does not tell of all changes.
        self._is_deaf = False

    def watch(self) -> None:
        """Watch all folders there are now, if that has to be done (again); before a look at the files."""
        if self._is_complete or self._is_deaf:
            return
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if self._queue is None and (queue := libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)) >= 0:
                self._queue = queue
            folders = folders_of(self._files)
        except (OSError, AttributeError):
            # Not Linux.
            self._is_deaf = True
            return
        paths = [
            path
            for folder in folders
            for path in (_inside(folder.path) if folder.recursive else [folder.path])
        ]
        self._is_complete = (
            self._queue is not None and are_local(folders) and all(self._add(libc, path) for path in paths)
        )
        self._is_deaf = not self._is_complete

    def _add(self, libc: ctypes.CDLL, folder: str) -> bool:
        number = libc.inotify_add_watch(self._queue, os.fsencode(folder), _CHANGES | _ONLY_FOLDERS)
        self._folders[number] = folder
        # A folder that went in between is news of the one above.
        return number >= 0 or ctypes.get_errno() == errno.ENOENT

    def has_news(self, *, is_settled: bool = False) -> bool | None:
        """Take all that is in the queue; True when a note may have changed, None when that cannot be told.

        `is_settled`: nothing was behind at the last look, so that a note which is stored by now is no news.
        """
        if self._is_deaf:
            return None
        has_news = not self._is_complete
        saved: set[str] = set()
        while self._queue is not None:
            try:
                events = os.read(self._queue, 65_536)
            except BlockingIOError:
                break
            has_news = self._is_news(events, saved) or has_news
        if has_news or not saved:
            return has_news
        return not is_settled or len(saved) > _MANY or not self._are_stored(saved)

    def _is_news(self, events: bytes, saved: set[str]) -> bool:
        """Add the notes that were saved; True when that is not all there is to know."""
        place, has_news = 0, False
        while place < len(events):
            folder, mask, _, length = _EVENT.unpack_from(events, place)
            place += _EVENT.size + length
            name = os.fsdecode(events[place - length : place].rstrip(b"\0"))
            if mask & (_FOLDER | _LOST):
                # Folders that are new have no watch yet.
                self._is_complete, has_news = False, True
            has_news = has_news or name in IGNORE_FILES
            if is_markdown(name):
                saved.add(os.path.join(self._folders[folder], name))
        return has_news

    def __del__(self) -> None:
        if self._queue is not None:
            with suppress(OSError):
                os.close(self._queue)


def _inside(root: str) -> list[str]:
    found = []
    for folder, folders, _ in os.walk(root):
        found.append(folder)
        folders[:] = [name for name in folders if not is_ignored_folder(name)]
    return found
