"""Read a transcript that its program compressed with Zstandard, line by line."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from memline.shared.sources.outcomes import NOT_TEXT, Problem
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.sources.transcripts.opening import OpenTranscript, lines_of

#: What such a file has behind the name of its transcript.
ENDING = ".zst"

#: Bytes that are unpacked of one file, and of its window, at most.
_MAX_BYTES, _MAX_WINDOW = 4 << 30, 128 << 20


def unpacked(data: bytes, most: int, *, window: int) -> bytes:
    """Unpack `most` bytes of a record at most; none of one that is damaged."""
    try:
        # A stream, since a frame may promise any size.
        with zstandard.ZstdDecompressor(max_window_size=window).stream_reader(data) as stream:
            return bytes(stream.read(most))
    except zstandard.ZstdError:
        return b""


def open_compressed(root: str, relative: str) -> OpenTranscript:
    """Open a compressed transcript below the trusted folder `root`. Raises FileRefused."""
    file = os.fdopen(open_regular(root, relative), "rb")
    status = os.fstat(file.fileno())
    return OpenTranscript(
        lines=_lines(file),
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        close=file.close,
    )


def _lines(file: BinaryIO) -> Iterator[bytes]:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    stream = unpacker.stream_reader(file, read_across_frames=True, closefd=False)
    try:
        yield from lines_of(io.BufferedReader(stream, 1 << 20), _MAX_BYTES)
    except zstandard.ZstdError as error:
        raise FileRefused(Problem(outcome=NOT_TEXT, reason=f"it cannot be unpacked: {error}")) from error


def is_there(absolute: str) -> str:
    """Return the path at which a transcript is: its own, or that of its compressed file."""
    packed = f"{absolute}{ENDING}"
    return packed if not os.path.lexists(absolute) and os.path.lexists(packed) else absolute
