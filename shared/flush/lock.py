"""A lock between processes: a file that one of them holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Wait for the lock at a path and hold it; whoever is killed lets it go. Raises OSError."""
    # Not on every system; where it is missing there is nothing to be flushed, and the rest goes on.
    import fcntl

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened = os.open(path, flags, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
