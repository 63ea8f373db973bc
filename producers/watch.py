"""Noticing changes of files as they happen; where the system cannot tell, asking for a look every so often.

The observer's thread only notes names. One thread of ours acts on them after the quiet time, watches over the
observer, and starts it anew when folders came, moved or went: inotify keeps reporting a moved folder under
its old name, and says nothing of a folder whose watch could not be added.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from producers.debounce import CEILING, Debounce
from producers.watched_folders import Watched, WatchedFiles
from shared.logs import Log
from shared.sources.outcomes import code
from shared.sources.scope import is_storable

WATCHING = "watching"
POLLING = "polling"

#: Seconds between two looks while files cannot be watched.
POLL_S = 10.0

#: Seconds between two looks at the health of the observer.
HEALTH_S = 5.0

#: Seconds before names whose callback failed are tried again, beside the quiet time.
_RETRY_S = 1.0

#: Polling turns after which watching is tried again: a limit may have been raised.
_TURNS_TO_RETRY = 6

#: Asked of the kernel: opening and closing are left out, or our own reading would be reported.
_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileModifiedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
]

#: Stands for "look at everything" among the names that are noticed; no ledger path is empty.
_EVERYTHING = ""

# Without a handler of its own the library's remarks about stopping would reach stderr.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


class Watcher(FileSystemEventHandler):
    """Watches files of one agent; a context manager. Both calls are made from a thread of its own.

    It reports changes from the moment `start` returns; what was changed before is the caller's to find.
    """

    def __init__(
        self,
        files: WatchedFiles,
        *,
        debounce_s: float,
        ceiling: float = CEILING,
        on_paths: Callable[[set[str]], None],
        on_rescan: Callable[[], None],
        poll_s: float = POLL_S,
        health_s: float = HEALTH_S,
        new_observer: Callable[[], BaseObserver] = Observer,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_paths` is called with ledger paths to look at, `on_rescan` when only a full look will do.

        `ceiling` is that of `Debounce`. When a call raises, the error is logged and the same is tried again a
        little later.
        """
        self._files = files
        self._on_paths = on_paths
        self._on_rescan = on_rescan
        self._poll_s = poll_s
        self._health_s = health_s
        self._new_observer = new_observer
        self._monotonic = monotonic
        self._log = Log("watch", {"folder": files.where})
        #: Guards what the observer's threads and ours share: the names, and the two flags.
        self._changed = threading.Condition()
        self._debounce = Debounce(debounce_s, ceiling)
        self._is_outdated = False
        self._is_stopping = False
        self._observer: BaseObserver | None = None
        self._folders: frozenset[Watched] = frozenset()
        self._turns_polled = 0
        self._next_turn = 0.0
        self._thread = threading.Thread(target=self._run, name="memline-watch", daemon=True)
        #: `watching`, or `polling` when the system cannot tell us of changes.
        self.mode = POLLING
        #: Why files are polled and what to do about it; empty while they are watched.
        self.reason = ""

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to watch, or to poll; a watcher is started once."""
        self._watch()
        self._next_turn = self._monotonic() + self._turn_s()
        self._thread.start()

    def stop(self) -> None:
        """End all threads. What waited for its quiet time is dropped: the next start looks at everything."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._unwatch()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Note what an event says; called from the observer's threads."""
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        if event.is_directory:
            if any(map(self._files.concerns_folder, paths)):
                # The observer follows new folders itself; of moved and deleted ones it keeps wrong ideas.
                self._notice(_EVERYTHING, is_outdated=event.event_type != "created")
            return
        for path in paths:
            located = self._files.locate(path)
            if located is not None:
                self._notice(located.path)
            elif not is_storable(path) and self._files.looks_like_one(path):
                # A name that no message can carry: a full look reports it.
                self._notice(_EVERYTHING)

    def _notice(self, name: str, *, is_outdated: bool = False) -> None:
        with self._changed:
            self._debounce.notice(name, self._monotonic())
            self._is_outdated = self._is_outdated or is_outdated
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                due_at = self._debounce.due_at()
                wake_at = self._next_turn if due_at is None else min(due_at, self._next_turn)
                if not self._is_stopping:
                    self._changed.wait(max(0.0, wake_at - self._monotonic()))
                if self._is_stopping:
                    return
                now = self._monotonic()
                names = self._debounce.take(now)
                is_outdated, self._is_outdated = (
                    (self._is_outdated, False) if _EVERYTHING in names else (False, self._is_outdated)
                )
            try:
                self._act(names, is_outdated=is_outdated)
                if now >= self._next_turn:
                    self._turn()
                    self._next_turn = self._monotonic() + self._turn_s()
            except Exception as error:
                # The thread must live on: a queue that cannot be reached now takes the names later.
                self._log.exception("watch.failed", error=str(error), files=len(names))
                with self._changed:
                    self._debounce.put_back(names or {_EVERYTHING}, self._monotonic() + _RETRY_S)
                self._next_turn = self._monotonic() + self._turn_s()

    def _act(self, names: set[str], *, is_outdated: bool) -> None:
        if _EVERYTHING in names:
            if self.mode == WATCHING and (is_outdated or self._files.folders() != self._folders):
                self._watch()
            elif self.mode == WATCHING:
                self._check_room()
            # After watching anew, so that nothing falls between.
            self._on_rescan()
        if paths := names - {_EVERYTHING}:
            self._on_paths(paths)

    def _turn(self) -> None:
        """What is done without any event: heal a broken observer, or poll."""
        if self.mode == WATCHING:
            if not self._is_healthy():
                self._log.warning("watch.observer_died")
                self._watch()
                self._on_rescan()
            return
        self._turns_polled += 1
        if self._turns_polled >= _TURNS_TO_RETRY:
            self._watch()
        self._on_rescan()

    def _turn_s(self) -> float:
        return self._health_s if self.mode == WATCHING else self._poll_s

    def _is_healthy(self) -> bool:
        # An emitter ends when its folder is deleted, also when a new one has its name already.
        observer = self._observer
        return (
            observer is not None
            and observer.is_alive()
            and all(emitter.is_alive() for emitter in observer.emitters.copy())
        )

    def _watch(self) -> None:
        """Watch the folders there are now, or fall back to polling."""
        self._unwatch()
        for attempt in (1, 2, 3):
            self._folders = self._files.folders()
            try:
                self._observer = _started(self._new_observer, self, self._folders)
            except FileNotFoundError as error:
                # A folder went between the list and its watch.
                if attempt == 3:
                    self._poll(error)
            except OSError as error:
                self._poll(error)
                return
            else:
                self.mode, self.reason = WATCHING, ""
                self._log.info("watch.started", folders=len(self._folders))
                self._check_room()
                return

    def _check_room(self) -> None:
        """Fall back to polling when no further watch can be had.

        The observer is silent about folders inside a tree that it could not watch, so we ask for one watch
        more, in an instance of its own: within one instance a folder that is watched already costs nothing.
        """
        if not sys.platform.startswith("linux") or not any(folder.recursive for folder in self._folders):
            return
        probe = frozenset({Watched(path=next(iter(self._folders)).path, recursive=False)})
        try:
            _end(_started(self._new_observer, FileSystemEventHandler(), probe))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._poll(error)

    def _poll(self, error: OSError) -> None:
        self._unwatch()
        self._turns_polled = 0
        self.mode, self.reason = POLLING, _why(error, self._poll_s)
        self._log.warning("watch.polling", error=code(error), every_s=self._poll_s)

    def _unwatch(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            _end(observer)


def _started(
    new_observer: Callable[[], BaseObserver], handler: FileSystemEventHandler, folders: frozenset[Watched]
) -> BaseObserver:
    """A running observer of these folders; when one cannot be watched it is ended and the error raised."""
    observer = new_observer()
    try:
        for folder in sorted(folders):
            observer.schedule(handler, folder.path, recursive=folder.recursive, event_filter=_EVENTS)
        observer.start()
    except BaseException:
        _end(observer)
        raise
    return observer


def _end(observer: BaseObserver) -> None:
    observer.stop()
    if observer.is_alive():
        observer.join()


def _why(error: OSError, poll_s: float) -> str:
    how = f"files are looked at every {poll_s:g} s"
    if error.errno == errno.ENOSPC:
        return f"inotify watches ran out, {how}; more: sysctl fs.inotify.max_user_watches=524288"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"inotify instances ran out, {how}; more: sysctl fs.inotify.max_user_instances=512"
    return f"watching failed ({code(error)}), {how}"
