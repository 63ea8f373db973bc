"""Report changes of files as they happen; where the system cannot tell of them, compare folders at intervals.

The observer's thread only notes names. The loop of the process takes them after the quiet time, and starts
the observer anew when folders were made, moved or removed: inotify keeps reporting a moved folder under its
old name. What a watch misses all the same, the scan of each minute finds (`follow`).
"""

import errno
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from watchdog import events
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver
from watchdog.observers.polling import PollingObserverVFS

from memline.shared.logs import Log
from memline.shared.sessions.transcripts import Transcripts
from memline.shared.sources.ignoring import IGNORE_FILES
from memline.shared.sources.outcomes import code
from memline.shared.sources.paths import MemoryPaths, is_storable
from memline.shared.sync.folders import WatchedFiles, WatchedFolder, are_local, folders_of

WATCHING = "watching"
POLLING = "polling"

#: Seconds between two looks at the folders while they cannot be watched, and between two at the observer.
POLL_S = 10.0
HEALTH_S = 5.0

#: Asked of the kernel: opening and closing are left out, or our own reading would be reported.
_EVENTS: list[type[events.FileSystemEvent]] = [
    *(events.FileCreatedEvent, events.FileModifiedEvent, events.FileDeletedEvent, events.FileMovedEvent),
    *(events.DirCreatedEvent, events.DirDeletedEvent, events.DirMovedEvent),
    # A file that may be read, or may not any more.
    events.FileAttribEvent,
]

#: Among the changed names: a full scan is due, or the folders are to be watched anew first. Not ledger paths.
_SCAN, _REWATCH = "", "/"

# Without a handler the library's remarks about stopping would reach stderr.
logging.getLogger("watchdog").addHandler(logging.NullHandler())
# A folder that comes back under another name is still watched under the old one. The library warns with all
# of its tables, kilobytes a folder; the tree is watched anew then.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"watchdog\.")


class Watcher(events.FileSystemEventHandler):
    """Watches files of one agent; a context manager, entered once.

    It reports changes from the moment it is entered; the caller finds what was changed before.
    """

    def __init__(
        self,
        files: WatchedFiles,
        *,
        quiet_s: float,
        most_s: float,
        new_observer: Callable[[], BaseObserver] = Observer,
    ) -> None:
        """Changes are reported together, `quiet_s` after the last and `most_s` after the first at most."""
        self._files = files
        self._new_observer = new_observer
        where = files.workspace if isinstance(files, MemoryPaths) else files.folders()[0]
        self._log = Log("watch", folder=where)
        self._quiet_s, self._most_s = quiet_s, most_s
        #: Guards what the observer's threads and the loop share: the names.
        self._changed = threading.Lock()
        #: What changed, and when the first of it did (monotonic s); when all of it is due.
        self._names: set[str] = set()
        self._first_s = self._due_s = 0.0
        #: When the observer is looked at next.
        self._look_s = 0.0
        self._observer: BaseObserver | None = None
        self._folders: frozenset[WatchedFolder] = frozenset()
        #: `watching`, or `polling` where the system cannot tell of changes.
        self.mode = POLLING
        #: Why watching failed and what to do about it; empty while it works, and on network file systems.
        self.reason = ""

    def __enter__(self) -> Self:
        self._watch()
        return self

    def __exit__(self, *_: object) -> None:
        # What waited for its quiet time is dropped: the next start scans all files.
        self._unwatch()

    def tick(self) -> tuple[set[str], bool]:
        """Return the ledger paths that changed, and whether only a full scan will do.

        Folders are watched anew where that is due.
        """
        now, names = time.monotonic(), set[str]()
        with self._changed:
            if now >= self._due_s:
                names, self._names = self._names, names
        if not names and now < self._look_s:
            return names, False
        self._look_s = now + HEALTH_S
        marks = names & {_SCAN, _REWATCH}
        is_scan_due = bool(marks) or not self._is_alive()
        if is_scan_due:
            if isinstance(self._files, MemoryPaths):
                self._files.rules.refresh()
            if marks != {_SCAN} or folders_of(self._files) != self._folders:
                # Before the scan, so that nothing is missed in between.
                self._watch()
        return names - marks, is_scan_due

    def on_any_event(self, event: events.FileSystemEvent) -> None:
        """Note what an event says; called from the observer's threads."""
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        if event.is_directory:
            if any(map(self._files.concerns_folder, paths)):
                # The observer follows new folders itself; of moved and deleted ones it keeps wrong ideas.
                self._add(_SCAN if event.event_type == "created" else _REWATCH)
            return
        for path in paths:
            if isinstance(self._files, Transcripts):
                if self._files.concerns_file(path):
                    # A scan finds out which sessions have grown enough.
                    self._add(_SCAN)
            elif located := self._files.locate(path):
                self._add(located.path)
            elif os.path.basename(path) in IGNORE_FILES:
                # Other files belong to the memory now.
                self._add(_REWATCH)
            elif not is_storable(path):
                # A name that no message can carry: a full scan reports it if it is like that of a note.
                self._add(_SCAN)

    def _add(self, name: str) -> None:
        with self._changed:
            now = time.monotonic()
            self._first_s = self._first_s if self._names else now
            self._due_s = min(now + self._quiet_s, self._first_s + self._most_s)
            self._names.add(name)

    def _is_alive(self) -> bool:
        # An emitter ends when its folder is deleted, also when a new one has its name already.
        observer = self._observer
        return bool(observer and all(each.is_alive() for each in (observer, *observer.emitters.copy())))

    def _watch(self) -> None:
        """Watch the folders there are now, or fall back to polling."""
        self._unwatch()
        self._folders = folders_of(self._files)
        self.mode, self.reason = WATCHING, ""
        # The kernel says nothing of what another host changes on NFS, SMB, FUSE, 9p or virtiofs.
        if not sys.platform.startswith("linux") or are_local(self._folders):
            try:
                self._observe(self._new_observer())
                self._log.info("watch.started", folders=len(self._folders))
                return
            except OSError as error:
                self.reason = _polling_reason(error)
        self.mode = POLLING
        self._log.warning("watch.polling", reason=self.reason, every_s=POLL_S)
        with suppress(OSError):
            # A folder that went between the list and its watch: the next look at the observer tries again.
            # Links are not followed, as in the walk of discovery.
            self._observe(PollingObserverVFS(stat=os.lstat, listdir=os.scandir, polling_interval=POLL_S))

    def _observe(self, observer: BaseObserver) -> None:
        """Start an observer of the folders; when one cannot be watched it is stopped. Raises OSError."""
        self._observer = observer
        try:
            for folder in sorted(self._folders):
                observer.schedule(self, folder.path, recursive=folder.recursive, event_filter=_EVENTS)
            observer.start()
        except BaseException:
            self._unwatch()
            raise

    def _unwatch(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            if observer.is_alive():
                observer.join()


def _polling_reason(error: OSError) -> str:
    how = f"files are scanned every {POLL_S:g} s"
    limits = {errno.ENOSPC: "max_user_watches=524288", errno.EMFILE: "max_user_instances=512"}
    if limit := limits.get(error.errno or 0):
        return f"inotify has no more for this user, {how}; more: sysctl fs.inotify.{limit}"
    return f"watching failed ({code(error)}), {how}"
