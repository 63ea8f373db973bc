"""Hand files to the chunk workers a window at a time, so that what waits in queues stays small.

The backlog is the rows in the index; never a queue of a million chunks in memory. The process that finds live
edits enqueues their files; the store worker feeds those of jobs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from sqlite3 import Connection

from memline.shared.queue.broker import send
from memline.shared.queue.messages import ChunkFiles
from memline.shared.scheduling import jobs

#: Paths in one message: enough to make messages cheap, few enough to spread over workers. Each is a
#: transaction and a segment of full text: with 32 a first index of 8,935 chunks took 5 % more CPU.
PATHS_PER_MESSAGE = 128

#: Files of a job that are enqueued and were not read yet, and their bytes, at most: a note that is saved
#: meanwhile waits behind them. With 16 MB it was found after 4.1 s, with one after 1.6.
AHEAD_FILES = 512
AHEAD_BYTES = 1024 * 1024

#: Seconds without a single arrival after which what is enqueued is enqueued again: the messages may be
#: lost. Twice as long each further time: workers may refuse them, each of them one more dead letter.
STALL_S = 10.0
MAX_STALL_S = 600.0

#: Seconds between two looks at how many files of a job have arrived.
FEED_EVERY_S = 0.1


def enqueue_files(
    agent: str, paths: Iterable[str], *, index: str = "", force: bool = False, job: str = ""
) -> None:
    """Send `ChunkFiles` for these ledger paths; `index` and `job` as there."""
    names = tuple(paths)
    for first in range(0, len(names), PATHS_PER_MESSAGE):
        part = names[first : first + PATHS_PER_MESSAGE]
        send(ChunkFiles(agent=agent, paths=part, force=force, job=job, index=index))


class JobFeeder:
    """Feeds the files of an agent's jobs, the oldest job first, in the process that dispatches its index.

    A file that was read leaves the rows of its job, so the window is the first of those rows, and another
    process goes on where this one ended.
    """

    def __init__(self, agent: str, index: str) -> None:
        """`index`: the file name of the index."""
        self._agent = agent
        self._index = index
        #: The job that is fed, and the files of the window that were enqueued.
        self._job_id = 0
        self._sent: set[str] = set()
        #: When a file arrived or was enqueued last, and when the feeder looked (monotonic seconds).
        self._moved_at = 0.0
        self._looked_at = -FEED_EVERY_S
        self._stall_s = STALL_S
        self._has_files = False

    def advance(self, connection: Connection) -> bool:
        """Enqueue the next files, unless that was done a moment ago; tells whether any is left to be read."""
        now = time.monotonic()
        if now - self._looked_at < FEED_EVERY_S:
            return self._has_files
        self._looked_at, job = now, jobs.next_to_read(connection)
        self._has_files = job is not None
        if job is not None:
            if job.id != self._job_id:
                self._job_id, self._sent = job.id, set()
            window = _window(jobs.files_of(connection, job.id, AHEAD_FILES))
            paths, force = self._due(window, now), bool(job.force)
            enqueue_files(self._agent, paths, index=self._index, force=force, job=job.token)
        return self._has_files

    def _due(self, window: list[str], now: float) -> list[str]:
        """Return what is to be enqueued of a window: what is new in it, or all of it when nothing arrives."""
        left = self._sent.intersection(window)
        due = [path for path in window if path not in left]
        if due or len(left) < len(self._sent):
            self._moved_at, self._stall_s = now, STALL_S
        elif now - self._moved_at > self._stall_s:
            self._moved_at, self._stall_s, due = now, min(2 * self._stall_s, MAX_STALL_S), window
        self._sent = left.union(due)
        return due

    def close(self) -> None:
        """Do nothing: what was not read is in the rows."""


def _window(files: Iterable[tuple[str, int]]) -> list[str]:
    """Return the first of these files (path, size) that may be on their way together."""
    window, room = list[str](), AHEAD_BYTES
    for path, size in files:
        if room <= 0:
            break
        window.append(path)
        room -= size
    return window
