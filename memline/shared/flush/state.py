"""Keep the state of every session's flush in a file of our own beside the transcripts.

The producer records how far it has counted and what it requested, the worker the outcome. Both may run at
the same time, so each change is a short one under a lock, and the file is replaced as a whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from memline.shared.flush.transcript import SessionSize
from memline.shared.logs import Log
from memline.shared.sources.outcomes import GONE
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.values import field, value

#: The file and its lock, in the folder of the transcripts. Neither ends in .jsonl, so neither is one.
STATE_NAME = "memline-flush.json"
_LOCK_NAME = "memline-flush.lock"

#: A larger file is not a state: one of 100,000 sessions has 40 MB.
_MAX_BYTES = 256 << 20

#: Outcomes of a flush; after those in DONE the cycle is over, the others are retried a few times.
ASKED, STORED, NOTHING, SKIPPED, FAILED = "asked", "stored", "nothing", "skipped", "failed"
DONE = frozenset({STORED, NOTHING})


@value(frozen=False)
class SessionState:
    """One session, by the name of its transcript."""

    size: SessionSize = field(default_factory=SessionSize)
    #: The compaction cycle that the rest is about, and the byte at which it began.
    cycle: str = ""
    start: int = 0
    #: Empty: nothing was requested yet.
    outcome: str = ""
    #: Why it was requested, skipped or failed.
    reason: str = ""
    attempts: int = 0
    #: When the outcome was written, seconds since the epoch.
    at: float = 0.0
    #: A reply that is paid for and may not be in the note yet.
    reply: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a request is not finished, or may be retried."""
        return bool(self.reply or self.outcome) and self.outcome not in DONE


@value(frozen=False)
class FlushState:
    """The whole file."""

    version: int = 1
    sessions: dict[str, SessionState] = field(default_factory=dict)


#: Made by the thread that imports this: two that make the shape at once end the process (queue/messages.py).
_FILE = msgspec.json.Decoder(FlushState)


def read(folder: Path) -> FlushState:
    """Read the file; empty when it is missing or has another shape. Raises OSError."""
    return _decoded(_content(folder)) or FlushState()


def _content(folder: Path) -> bytes:
    try:
        opened = open_regular(str(folder), STATE_NAME)
    except FileRefused as error:
        if error.problem.outcome != GONE:
            raise OSError(f"{STATE_NAME}: {error.message}") from error
        return msgspec.json.encode(FlushState())
    with os.fdopen(opened, "rb") as file:
        return file.read(_MAX_BYTES)


def _decoded(content: bytes) -> FlushState | None:
    try:
        return _FILE.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@contextlib.contextmanager
def editing(folder: Path) -> Iterator[FlushState]:
    """Lend the state for a change, and write it at the end of the block when it has changed.

    Raises OSError when the folder cannot be written; then nothing has changed.
    """
    path = folder / STATE_NAME
    with file_lock(folder / _LOCK_NAME):
        before = _content(folder)
        state = _decoded(before)
        if state is None:
            Log("flush").warning("flush.state_broken", file=str(path))
            state = FlushState()
        yield state
        if (after := msgspec.json.encode(state)) == before:
            return
        # Replaced as a whole, so that a reader sees the old one or the new one, also after a power failure.
        # One name beside it, because a process that is killed here leaves it; only the lock's holder writes.
        beside = path.with_name(f"{STATE_NAME}.new")
        # 0600: a reply waits here until it is in a note.
        opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the kernel releases it when its holder dies. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened = os.open(path, flags, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def can_be_named(name: str) -> bool:
    """Tell whether a state can hold this name: that of a file in the folder, in valid UTF-8."""
    return "/" not in name and name == name.encode("utf-8", "ignore").decode()
