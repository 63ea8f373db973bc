"""Open the file of a transcript, and leave out of it what its program took back, each byte in its place.

What was taken back is read as blanks of the same length. So a citation names the line that it names in the
file, and a line that is taken back later changes bytes that were read before: the session is read anew.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from memline.shared.sources.outcomes import FAILED, Problem
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.sqlite import library
from memline.shared.values import replace, value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: First byte of a line, and the byte behind its last one (its end is not part of it).
Span = tuple[int, int]
Line = tuple[Span, bytes]

#: Longest line that is looked at; a longer one is no record of a message (see `transcript_slices`).
_MAX_LINE_BYTES = 64 << 20


@value
class OpenTranscript:
    """An open transcript: lines with their ends, and the state that a scan compares. To be closed."""

    file: BinaryIO
    size: int
    mtime_ns: int
    ctime_ns: int
    #: Bytes on the disk, which a scan compares, where those that are read are others.
    stored: int | None = None


def open_file(root: str, relative: str) -> OpenTranscript:
    """Open a transcript below the trusted folder `root`, following no link. Raises FileRefused."""
    # Read in large blocks: lines of a transcript are long.
    file = os.fdopen(open_regular(root, relative), "rb", buffering=1 << 20)
    status = os.fstat(file.fileno())
    return OpenTranscript(
        file=file, size=status.st_size, mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns
    )


def without(opened: OpenTranscript, taken_back: Callable[[Iterable[Line]], Iterable[Span]]) -> OpenTranscript:
    """Return the open transcript without the lines of these spans. Closes it when that raises."""
    try:
        spans = sorted(taken_back(lines(opened.file, opened.size)))
        opened.file.seek(0)
    except BaseException:
        opened.file.close()
        raise
    return replace(opened, file=io.BufferedReader(_Blanked(opened.file, spans), 1 << 20)) if spans else opened


def lines(file: BinaryIO, size: int) -> Iterator[Line]:
    """Yield the complete lines of the first `size` bytes, and where each is."""
    start = 0
    while start < size and (data := file.readline(min(_MAX_LINE_BYTES, size - start))):
        if data.endswith(b"\n"):
            yield (start, start + len(data) - 1), data
        start += len(data)


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


class DerivedFile(io.RawIOBase):
    """A file to read and seek in, whose bytes are made from a source; that is closed with it."""

    def __init__(self, source: BinaryIO | Connection) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class _Blanked(DerivedFile):
    """A file whose spans read as blanks."""

    def __init__(self, file: BinaryIO, spans: Sequence[Span]) -> None:
        super().__init__(file)
        self._file = file
        self._spans = spans
        self._starts = [start for start, _ in spans]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer)
        begin = self._file.tell()
        data = self._file.read(len(room))
        room[: len(data)] = data
        for start, stop in self._spans[max(0, bisect_right(self._starts, begin) - 1) :]:
            if start >= begin + len(data):
                break
            first, last = max(start - begin, 0), min(stop - begin, len(data))
            if first < last:
                room[first:last] = b" " * (last - first)
        return len(data)
