"""Open a transcript: its lines, once and in order, and the state that a scan compares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from memline.shared.sources.outcomes import FAILED, Problem
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.sqlite import library
from memline.shared.values import replace, value

#: Number of a line, from 0, and the line.
Line = tuple[int, bytes]

#: Longest line that is read. A message with images in it has a few megabytes.
MAX_LINE_BYTES = 64 << 20


@value
class OpenTranscript:
    """An open transcript, a context manager. Reading its lines may raise OSError and FileRefused."""

    #: With their ends; one that is too long is no record.
    lines: Iterator[bytes]
    size: int
    mtime_ns: int
    ctime_ns: int
    #: Closes what the lines are read from.
    close: Callable[[], object] = lambda: None

    def __enter__(self) -> OpenTranscript:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_file(root: str, relative: str) -> OpenTranscript:
    """Open a transcript below the trusted folder `root`, following no link. Raises FileRefused."""
    # Read in large blocks: lines of a transcript are long.
    file = os.fdopen(open_regular(root, relative), "rb", buffering=1 << 20)
    status = os.fstat(file.fileno())
    return OpenTranscript(
        lines=lines_of(file, status.st_size),
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        close=file.close,
    )


def lines_of(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the lines of the first `size` bytes, the last one perhaps without its end."""
    while size > 0 and (line := file.readline(min(MAX_LINE_BYTES, size))):
        size -= len(line)
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            # Not a record: it is counted as broken, and nothing of it is kept.
            while size > 0 and (rest := file.readline(min(MAX_LINE_BYTES, size))):
                size -= len(rest)
                if rest.endswith(b"\n"):
                    break
            line = b"too long\n"
        yield line


def without(opened: OpenTranscript, taken_back: Callable[[Iterable[Line]], Iterable[int]]) -> OpenTranscript:
    """Return the open transcript with an empty line for each that its program took back.

    So a citation names the line that it names in the file.
    """

    def kept() -> Iterator[bytes]:
        lines = list(opened.lines)
        for number in taken_back(enumerate(lines)):
            lines[number] = b"\n"
        yield from lines

    return replace(opened, lines=kept())


@contextmanager
def database_faults(program: str, database: Path) -> Iterator[None]:
    """Raise FileRefused for what SQLite says against the database of a program's sessions."""
    try:
        yield
    except (library().Error, OverflowError) as error:
        reason = f"sessions of {program} not readable ({database}): {error}"
        raise FileRefused(Problem(outcome=FAILED, reason=reason)) from error


def as_ns(time_ms: object) -> int:
    """Return milliseconds as nanoseconds; what is no time of a file is 0."""
    return time_ms * 1_000_000 if isinstance(time_ms, int) and 0 <= time_ms < 1 << 42 else 0
