"""Tell searches that the index holds all that is on the disk, so that they need not walk the workspace.

    <index>.fresh    what the word is about; its time of modification is the heartbeat

A process that follows the files locks this file while it knows that nothing is behind. It lets go at the
first sign of a change, before it knows what changed, and when it is killed the system lets go for it. The
heartbeat is for a process that hangs or is stopped: its word is taken for `MAX_AGE_S` more.

It is no row of the index: the word must end at once, also while another process writes, and each
heartbeat would end all cached answers.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from contextlib import suppress
from pathlib import Path

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.index.driver import file_id
from memline.shared.sync.plan import chunking_digest, transcript_digest, transcripts_searched

#: Seconds between two heartbeats, and after which the word of a process without one is not taken.
BEAT_S = 1.0
MAX_AGE_S = 3.0


def is_fresh(settings: AgentSettings, *, clock: Clock | None = None) -> bool:
    """Tell whether a live process says that the index of an agent holds all that is on the disk."""
    try:
        opened = os.open(_path(settings), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        age_ns = (clock or SystemClock()).now_ns() - os.fstat(opened).st_mtime_ns
        about = _about(settings)
        return 0 <= age_ns <= MAX_AGE_S * 1e9 and about is not None and os.pread(opened, 65_536, 0) == about
    except OSError:
        return False
    finally:
        os.close(opened)


def forget(settings: AgentSettings) -> None:
    """Revoke the word of whichever process gave it: the index holds something else now."""
    with suppress(OSError):
        _path(settings).unlink()


class FreshMark:
    """Gives and revokes the word of this process about one index. Safe to use from several threads."""

    def __init__(self, settings: AgentSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: How often the word was taken back: one that was found out before that is not given.
        self._revocations = 0
        #: What the look that found nothing was about; None while there is no word to give.
        self._about: bytes | None = None
        #: The locked file, while the word is given.
        self._held: int | None = None
        self._beat_ns = 0

    def revoke(self) -> int:
        """Take the word back; returns the number with which the next look gives it again."""
        with self._lock:
            self._revocations += 1
            self._let_go()
            return self._revocations

    def give(self, number: int, about: bytes | None) -> None:
        """Give the word, unless it was taken back since `revoke` returned this number.

        `about` is what `about` returned before the look.
        """
        with self._lock:
            if number == self._revocations:
                self._about = about
        self.beat()

    def about(self) -> bytes | None:
        """Return what a look that begins now is about; None while there is no index."""
        return _about(self._settings)

    def beat(self) -> None:
        """Renew the word every second, if it is given; for a loop that finds the changes."""
        with self._lock:
            now_ns = self._clock.now_ns()
            if self._about is None or 0 <= now_ns - self._beat_ns < BEAT_S * 1e9:
                return
            try:
                if self._held is None:
                    self._held = self._locked(self._about)
                elif file_id(_path(self._settings)) != _id_of(self._held):
                    # Another process has ended it, and knows better.
                    self._let_go()
                if self._held is not None:
                    os.utime(self._held, ns=(now_ns, now_ns))
                    self._beat_ns = now_ns
            except OSError:
                # A disk that is full, or a folder that is gone: searches look themselves.
                self._let_go()

    def _locked(self, about: bytes) -> int | None:
        """Open and lock the file; None while a search looks at it, or another process gives its word."""
        opened = os.open(_path(self._settings), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The time comes last: until then it is the old word, and too old.
            os.utime(opened, ns=(0, 0))
            os.ftruncate(opened, 0)
            os.pwrite(opened, about, 0)
        except OSError as error:
            os.close(opened)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return opened

    def _let_go(self) -> None:
        self._about, self._beat_ns = None, 0
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _id_of(opened: int) -> tuple[int, int]:
    status = os.fstat(opened)
    return status.st_dev, status.st_ino


def _path(settings: AgentSettings) -> Path:
    return Path(f"{settings.index_path}.fresh")


def _about(settings: AgentSettings) -> bytes | None:
    """Write down what a look compares: this index, and the files by these settings; None without an index."""
    index = file_id(settings.index_path)
    if index is None:
        return None
    memory = settings.memory
    size = (memory.chunking.tokens, memory.chunking.overlap)
    transcripts = transcripts_searched(settings)
    return json.dumps(
        [
            *index,
            str(settings.workspace),
            [repr(path) for path in memory.extra_paths],
            repr(memory.exclude),
            memory.ignore_files,
            list(memory.sources),
            chunking_digest(*size),
            transcript_digest(*size),
            list(transcripts.folders()) if transcripts else [],
            memory.sync.sessions.delta_bytes,
            memory.sync.sessions.delta_messages,
        ]
    ).encode()
