"""Handing files to the chunk workers a window at a time, so that what waits in queues stays small.

The backlog is the list of paths here, and the rows there; never a queue of a million chunks in memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from producers.announce import PATHS_PER_MESSAGE, announce
from shared.index import ledger

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Files that are announced and not in the ledger yet, at most. A tenth of a second of work.
WINDOW_FILES = 512

#: Bytes of such files at most: their text is in memory until it is stored.
WINDOW_BYTES = 16 * 1024 * 1024

#: Seconds without a single arrival after which what is announced is announced again: the messages may be
#: lost (a flushed Redis, a killed worker), and a repeated one is harmless. Twice as long each further time:
#: they may as well be refused, each of them one more dead letter.
STALL_S = 10.0
MAX_STALL_S = 600.0


class Feed:
    """The files of one look, announced as the ones before arrive in the ledger."""

    def __init__(
        self,
        agent: str,
        files: Iterable[tuple[str, int]],
        *,
        looked_ns: int,
        force: bool = False,
        backfill: bool = False,
    ) -> None:
        """`files` are (ledger path, size); `looked_ns` is a time before they were looked at."""
        self._agent = agent
        self._waiting = deque(files)
        self._sizes: dict[str, int] = {}
        self._looked_ns = looked_ns
        self._force = force
        self._backfill = backfill
        self._moved = time.monotonic()
        #: When the last part of a file that has not arrived as a whole was observed (ns).
        self._parts: dict[str, int] = {}
        self._stall_s = STALL_S
        self.total = len(self._waiting)

    @property
    def all_announced(self) -> bool:
        """Whether nothing is left here: the rest is the workers' business."""
        return not self._waiting

    @property
    def is_within_file(self) -> bool:
        """Whether a part of a file arrived a moment ago: the next is on its way, however long that takes."""
        return bool(self._parts) and time.monotonic() - self._moved < STALL_S

    @property
    def done(self) -> int:
        """Files whose row is newer than the look."""
        return self.total - len(self._waiting) - len(self._sizes)

    def advance(self, connection: Connection | None) -> None:
        """Take the files that have arrived off the list and announce the next; None: no index yet."""
        if connection is not None:
            # One by one: the window is small, and the ledger may have a million rows.
            for path in list(self._sizes):
                observed_ns, is_whole = ledger.looked_at(connection, path)
                if observed_ns < self._looked_ns or observed_ns == self._parts.get(path):
                    continue
                # A long transcript comes in parts.
                self._parts[path] = observed_ns
                self._moved = time.monotonic()
                self._stall_s = STALL_S
                if is_whole:
                    del self._sizes[path], self._parts[path]
        paths: list[str] = []
        if self._sizes and time.monotonic() - self._moved > self._stall_s:
            paths.extend(self._sizes)
            self._stall_s = min(2 * self._stall_s, MAX_STALL_S)
        room = WINDOW_BYTES - sum(self._sizes.values())
        while self._waiting and len(self._sizes) < WINDOW_FILES and (room > 0 or not self._sizes):
            path, size = self._waiting.popleft()
            self._sizes[path] = size
            room -= size
            paths.append(path)
        if paths:
            self._moved = time.monotonic()
        for first in range(0, len(paths), PATHS_PER_MESSAGE):
            announce(
                self._agent,
                paths[first : first + PATHS_PER_MESSAGE],
                force=self._force,
                backfill=self._backfill,
                asked_ns=self._looked_ns if self._backfill else 0,
            )
