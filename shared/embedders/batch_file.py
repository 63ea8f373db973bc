"""The file of a batch on its way out: lines collected on disk, and the request bodies that carry it.

A file of 200 MB is never in memory: it is written to a temporary file without a name, so that its size is
known before the first byte is sent, and read from there piece by piece.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import IO

from shared.embedders.batch import BatchCaps
from shared.embedders.connection import Upload
from shared.errors import ProviderBrokenAnswer, ProviderLater, ProviderTooBig

#: Bytes that are read and sent at a time.
PIECE_BYTES = 256 * 1024

CONTENT_TYPE = "application/jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFile:
    """Lines on disk; gone when the block of `collected` ends."""

    size: int
    rows: int
    file: IO[bytes]

    def pieces(self) -> Iterator[bytes]:
        self.file.seek(0)
        while piece := self.file.read(PIECE_BYTES):
            yield piece


@contextmanager
def collected(lines: Iterable[bytes], *, caps: BatchCaps, provider: str) -> Iterator[BatchFile]:
    """The lines as a file.

    Raises ProviderTooBig above the caps, ProviderLater when the disk is full, and ProviderBrokenAnswer when
    there is no line.
    """
    size = rows = 0
    with tempfile.TemporaryFile(buffering=PIECE_BYTES) as file:
        for line in lines:
            rows += 1
            size += len(line)
            if rows > caps.max_rows:
                raise ProviderTooBig(
                    f"{provider} batch of more than {caps.max_rows} rows", max_rows=caps.max_rows
                )
            if size > caps.max_bytes:
                raise ProviderTooBig(
                    f"{provider} batch of more than {caps.max_bytes} bytes", max_rows=max(rows - 1, 1)
                )
            _write(file, line, provider)
        _write(file, None, provider)
        if not rows:
            # Whoever gave the rows may have lost them meanwhile.
            raise ProviderBrokenAnswer(f"{provider} batch without rows")
        yield BatchFile(size=size, rows=rows, file=file)


def line_of(row: Mapping[str, object]) -> bytes:
    """A row as a line of JSON. A lone surrogate cannot be sent, and becomes a question mark."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def form(file: BatchFile, *, name: str, fields: Mapping[str, str]) -> Upload:
    """A body of `multipart/form-data`, as a web form sends it."""
    boundary = f"memline{token_hex(16)}"
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in fields.items()
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: {CONTENT_TYPE}\r\n\r\n"
    )
    return _between(file, f"multipart/form-data; boundary={boundary}", head, f"\r\n--{boundary}--\r\n", {})


def related(file: BatchFile, *, about: Mapping[str, object]) -> Upload:
    """A body of `multipart/related`, as Google takes a file and what is to be known about it."""
    boundary = f"memline{token_hex(16)}"
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(about)}\r\n"
        f"--{boundary}\r\nContent-Type: {CONTENT_TYPE}\r\n\r\n"
    )
    headers = {"x-goog-upload-protocol": "multipart"}
    return _between(file, f"multipart/related; boundary={boundary}", head, f"\r\n--{boundary}--\r\n", headers)


def _between(file: BatchFile, content_type: str, head: str, tail: str, headers: Mapping[str, str]) -> Upload:
    before, after = head.encode(), tail.encode()

    def pieces() -> Iterator[bytes]:
        yield before
        yield from file.pieces()
        yield after

    size = len(before) + file.size + len(after)
    return Upload(content_type=content_type, size=size, pieces=pieces, headers=headers)


def _write(file: IO[bytes], line: bytes | None, provider: str) -> None:
    """Write a line, or what is still in the buffer."""
    try:
        if line is None:
            file.flush()
        else:
            file.write(line)
    except OSError as error:
        raise ProviderLater(
            f"the file of a {provider} batch cannot be written to {tempfile.gettempdir()}: {error.strerror}",
            hint="make room there, or set TMPDIR to another folder",
        ) from None
