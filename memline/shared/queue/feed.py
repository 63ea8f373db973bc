"""Hand files to the chunk workers a window at a time, so that what waits in queues stays small.

The backlog is the list of paths here and the rows in the index; never a queue of a million chunks in memory.
The process that finds live edits feeds their files; the store worker feeds those of jobs, from their rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from sqlite3 import Connection

from memline.shared.index import jobs, ledger
from memline.shared.queue.broker import send
from memline.shared.queue.messages import ChunkFiles
from memline.shared.sources.paths import source_of

#: Paths in one message: enough to make messages cheap, few enough to spread over workers. Each is a
#: transaction and a segment of full text: with 32 a first index of 8,935 chunks took 5 % more CPU.
PATHS_PER_MESSAGE = 128

#: Files that are enqueued and not in the ledger yet, at most: a tenth of a second of work, if
#: they are small.
AHEAD_FILES = 512

#: Bytes of such files at most: a note that is saved meanwhile waits behind them. With 16 MB it was found
#: after 4.1 s (`benchmarks save-import`), with one after 1.6, 1.5 of which are the debounce.
AHEAD_BYTES = 1024 * 1024

#: Seconds without a single arrival after which what is enqueued is enqueued again: the messages may be
#: lost (a flushed Redis, a killed worker), and a repeated one is harmless. Twice as long each further time:
#: workers may also refuse them, each of them one more dead letter.
STALL_S = 10.0
MAX_STALL_S = 600.0

#: Seconds between two looks at how many files of a job have arrived.
FEED_EVERY_S = 0.1


def enqueue_files(
    agent: str, paths: Iterable[str], *, index: str = "", force: bool = False, job: str = ""
) -> None:
    """Send `ChunkFiles` for these ledger paths; `index` and `job` as there."""
    of_source: dict[str, list[str]] = {}
    for path in paths:
        of_source.setdefault(source_of(path), []).append(path)
    for source, names in of_source.items():
        for first in range(0, len(names), PATHS_PER_MESSAGE):
            part = tuple(names[first : first + PATHS_PER_MESSAGE])
            send(ChunkFiles(agent=agent, source=source, paths=part, force=force, job=job, index=index))


class FileFeeder:
    """Enqueues the files of one scan, the next ones as the ones before arrive in the ledger."""

    def __init__(
        self,
        agent: str,
        files: Iterable[tuple[str, int]],
        *,
        scanned_ns: int,
        index: str = "",
        force: bool = False,
        job: str = "",
    ) -> None:
        """`files` are (ledger path, size); `scanned_ns` is a time before the disk was scanned for them."""
        self._enqueue = partial(enqueue_files, agent, index=index, force=force, job=job)
        self._pending = deque(files)
        #: Path -> size of the files that are enqueued and have not arrived.
        self._sizes: dict[str, int] = {}
        self._scanned_ns = scanned_ns
        #: When a file arrived or was enqueued last (monotonic seconds).
        self._moved_at = time.monotonic()
        self._stall_s = STALL_S
        self.total = len(self._pending)

    @property
    def done(self) -> int:
        """Count the files whose row is newer than the scan."""
        return self.total - len(self._pending) - len(self._sizes)

    def advance(self, connection: Connection | None) -> None:
        """Take the files that have arrived off the list and enqueue the next; None: no index yet."""
        # Those of the window alone: the ledger may have a million rows.
        observed = ledger.observations(connection, self._sizes) if connection and self._sizes else {}
        for path, observed_ns in observed.items():
            if observed_ns >= self._scanned_ns:
                self._moved_at = time.monotonic()
                self._stall_s = STALL_S
                del self._sizes[path]
        paths: list[str] = []
        if self._sizes and time.monotonic() - self._moved_at > self._stall_s:
            paths.extend(self._sizes)
            self._stall_s = min(2 * self._stall_s, MAX_STALL_S)
        room = AHEAD_BYTES - sum(self._sizes.values())
        while self._pending and len(self._sizes) < AHEAD_FILES and (room > 0 or not self._sizes):
            path, size = self._pending.popleft()
            self._sizes[path] = size
            room -= size
            paths.append(path)
        if paths:
            self._moved_at = time.monotonic()
            self._enqueue(paths)


class JobFeeder:
    """Feeds the files of an agent's jobs, the oldest job first, in the process that dispatches its index.

    Which files are left is read from the rows, so another process goes on where this one ended.
    """

    def __init__(self, agent: str, index: str) -> None:
        """`index`: the file name of the index."""
        self._agent = agent
        self._index = index
        #: Token and time of the job that is fed.
        self._job = "", 0
        self._feeder: FileFeeder | None = None
        self._looked_at = -FEED_EVERY_S

    def advance(self, connection: Connection) -> bool:
        """Enqueue the next files, unless that was done a moment ago; tells whether any is left to be read."""
        now = time.monotonic()
        if now - self._looked_at >= FEED_EVERY_S:
            self._looked_at = now
            self._feeder = self._feeder_of(connection)
            if self._feeder is not None:
                self._feeder.advance(connection)
        return self._feeder is not None

    def _feeder_of(self, connection: Connection) -> FileFeeder | None:
        """Return the feeder of the next job: the one there is, unless it is of another or at its end."""
        job = jobs.next_to_read(connection)
        if job is None:
            return None
        feeder, key = self._feeder, (job.token, job.created_ns)
        if feeder is not None and key == self._job and feeder.done < feeder.total:
            return feeder
        self._job = key
        files = jobs.files_of(connection, job.id)
        return FileFeeder(
            self._agent,
            files,
            scanned_ns=job.created_ns,
            index=self._index,
            force=bool(job.force),
            job=job.token,
        )

    def close(self) -> None:
        """Do nothing: what was not read is in the rows."""
