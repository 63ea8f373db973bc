"""Read a transcript that its program compressed with Zstandard, a block at a time."""

from __future__ import annotations

import io
import os
from typing import Any, BinaryIO

import zstandard

from memline.shared.sources.outcomes import NOT_TEXT, TOO_LARGE, Problem
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.transcripts.opening import DerivedFile, OpenTranscript, open_file
from memline.shared.values import replace

#: What such a file has behind the name of its transcript.
ENDING = ".zst"

#: Bytes that are unpacked of one file, and of its window, at most.
_MAX_BYTES, _MAX_WINDOW = 4 << 30, 128 << 20

_BLOCK = 1 << 20


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
    opened = open_file(root, relative)
    file = _Unpacked(opened.file)
    try:
        size = 0
        while block := file.read(_BLOCK):
            size += len(block)
            if size > _MAX_BYTES:
                reason = f"unpacked it has more than {_MAX_BYTES} bytes"
                raise FileRefused(Problem(outcome=TOO_LARGE, reason=reason))
        file.seek(0)
    except OSError as error:
        opened.file.close()
        raise FileRefused(Problem(outcome=NOT_TEXT, reason=f"it cannot be unpacked: {error}")) from error
    except BaseException:
        opened.file.close()
        raise
    return replace(opened, file=io.BufferedReader(file, _BLOCK), size=size, stored=opened.size)


def first_line(root: str, relative: str, limit: int) -> bytes:
    """Return the first line of a compressed transcript. Raises FileRefused and OSError."""
    with open_file(root, relative).file as file:
        return io.BufferedReader(_Unpacked(file), _BLOCK).readline(limit)


class _Unpacked(DerivedFile):
    """The bytes that were compressed. To go back it begins anew, which a reader does once or twice."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._file = file
        self._begin()

    def _begin(self) -> None:
        self._file.seek(0)
        unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        self._stream = unpacker.stream_reader(self._file, read_across_frames=True, closefd=False)
        self._at = 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        assert whence == io.SEEK_SET or not offset
        if whence == io.SEEK_SET:
            if offset < self._at:
                self._begin()
            while self._at < offset and self.read(min(_BLOCK, offset - self._at)):
                pass
        return self._at

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer)
        try:
            data = self._stream.read(len(room))
        except zstandard.ZstdError as error:
            raise OSError(str(error)) from error
        room[: len(data)] = data
        self._at += len(data)
        return len(data)


def is_there(absolute: str) -> str:
    """Return the path at which a transcript is: its own, or that of its compressed file."""
    packed = f"{absolute}{ENDING}"
    return packed if not os.path.lexists(absolute) and os.path.lexists(packed) else absolute
