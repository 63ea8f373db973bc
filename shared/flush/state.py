"""What became of the flush of every session, in a file of our own beside the transcripts.

The producer keeps there how far it has counted and what it asked for, the worker what came of it. Both may
run at the same time, so each change is a short one under a lock, and the file is replaced as a whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shared.flush.size import SessionSize

#: The file and its lock, in the folder of the transcripts. Neither ends in .jsonl, so neither is one.
STATE_NAME = "memline-flush.json"
_LOCK_NAME = "memline-flush.lock"

#: Outcomes of a flush.
ASKED, STORED, NOTHING, SKIPPED, FAILED = "asked", "stored", "nothing", "skipped", "failed"

#: Outcomes after which the cycle is over.
SETTLED = frozenset({STORED, NOTHING, SKIPPED})


@dataclass(slots=True, kw_only=True)
class SessionState:
    """One session, by the name of its transcript."""

    size: SessionSize = field(default_factory=SessionSize)
    #: The compaction cycle the rest is about: how many compactions there had been; -1: nothing was asked yet.
    cycle: int = -1
    outcome: str = ""
    #: Why it was asked for, left out or failed.
    reason: str = ""
    attempts: int = 0
    #: When the outcome was written, seconds since the epoch.
    at: float = 0.0
    #: A reply that is paid for and not known to be in the note yet.
    reply: str = ""


@dataclass(slots=True, kw_only=True)
class FlushState:
    """The whole file."""

    version: int = 1
    sessions: dict[str, SessionState] = field(default_factory=dict)


def read(folder: Path) -> FlushState:
    """What the file says; nothing when there is none, or when it is no such file."""
    try:
        return msgspec.json.decode((folder / STATE_NAME).read_bytes(), type=FlushState)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError):
        return FlushState()


@contextlib.contextmanager
def editing(folder: Path) -> Iterator[FlushState]:
    """The state to be changed: what it is at the end of the block is what the file says then.

    Raises OSError when the folder cannot be written; then nothing has changed.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(folder / _LOCK_NAME, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read(folder)
        yield state
        _replace(folder / STATE_NAME, msgspec.json.encode(state))
    finally:
        os.close(lock)


def _replace(path: Path, content: bytes) -> None:
    """Write the file as a whole: a reader sees the old one or the new one."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        # 0600: a reply waits here until it is in a note.
        opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
