"""What became of the flush of every session, in a file of our own beside the transcripts.

The producer keeps there how far it has counted and what it asked for, the worker what came of it. Both may
run at the same time, so each change is a short one under a lock, and the file is replaced as a whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shared.flush.lock import held
from shared.flush.size import SessionSize
from shared.logs import Log
from shared.sources.outcomes import GONE
from shared.sources.safe_open import FileRefused, open_regular

#: The file and its lock, in the folder of the transcripts. Neither ends in .jsonl, so neither is one.
STATE_NAME = "memline-flush.json"
_LOCK_NAME = "memline-flush.lock"

#: Larger is no state: one of 100,000 sessions has 40 MB.
_MAX_BYTES = 256 << 20

#: Outcomes of a flush.
ASKED, STORED, NOTHING, SKIPPED, FAILED = "asked", "stored", "nothing", "skipped", "failed"

#: Outcomes after which the cycle is over; the others are tried again a few times.
SETTLED = frozenset({STORED, NOTHING})


@dataclass(slots=True, kw_only=True)
class SessionState:
    """One session, by the name of its transcript."""

    size: SessionSize = field(default_factory=SessionSize)
    #: The compaction cycle that the rest is about, and the byte at which it began.
    cycle: str = ""
    start: int = 0
    #: Empty: nothing was asked yet.
    outcome: str = ""
    #: Why it was asked for, left out or failed.
    reason: str = ""
    attempts: int = 0
    #: When the outcome was written, seconds since the epoch.
    at: float = 0.0
    #: A reply that is paid for and not known to be in the note yet.
    reply: str = ""

    @property
    def is_open(self) -> bool:
        """Whether something was asked for that has not come to its end, or may be tried again."""
        return bool(self.reply or self.outcome) and self.outcome not in SETTLED


@dataclass(slots=True, kw_only=True)
class FlushState:
    """The whole file."""

    version: int = 1
    sessions: dict[str, SessionState] = field(default_factory=dict)


def read(folder: Path) -> FlushState:
    """What the file says; nothing when there is none, or when it is no such file. Raises OSError."""
    return _read(folder) or FlushState()


def _read(folder: Path) -> FlushState | None:
    """The same; None for a file that is none of ours."""
    try:
        opened = open_regular(str(folder), STATE_NAME)
    except FileRefused as error:
        if error.problem.outcome != GONE:
            raise OSError(f"{STATE_NAME}: {error.message}") from error
        return FlushState()
    with os.fdopen(opened, "rb") as file:
        content = file.read(_MAX_BYTES)
    try:
        return msgspec.json.decode(content, type=FlushState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@contextlib.contextmanager
def editing(folder: Path) -> Iterator[FlushState]:
    """The state to be changed: what it is at the end of the block is what the file says then.

    Raises OSError when the folder cannot be written; then nothing has changed.
    """
    with held(folder / _LOCK_NAME):
        state = _read(folder)
        if state is None:
            Log("flush").warning("flush.state_broken", file=str(folder / STATE_NAME))
            state = FlushState()
        yield state
        _replace(folder / STATE_NAME, msgspec.json.encode(state))


def can_be_named(name: str) -> bool:
    """Whether a state can hold this file name: one that is no UTF-8 cannot be written down."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _replace(path: Path, content: bytes) -> None:
    """Write the file as a whole: a reader sees the old one or the new one, also after a power failure."""
    # One name, because whoever is killed here leaves it behind; nobody else writes while we hold the lock.
    beside = path.with_name(f"{path.name}.new")
    try:
        # 0600: a reply waits here until it is in a note.
        opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
