"""Write the JSONL file that a job is made of, and split the JSONL of its results into lines.

A file of 200 MB is never in memory: it is written to a temporary file without a name, so that its size is
known before the first byte is sent, and read from there piece by piece.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from secrets import token_hex
from typing import IO

from memline.shared.batches.api import MAX_BYTES, MAX_ROWS
from memline.shared.embedders.http import Upload
from memline.shared.errors import ProviderBrokenAnswer, ProviderLater, ProviderTooBig

#: Bytes that are read and sent at a time.
PIECE_BYTES = 256 * 1024

CONTENT_TYPE = "application/jsonl"

#: 3,072 numbers are 75 kB; a longer line than this is not a row, and only its beginning is kept.
MAX_LINE_BYTES = 16 * 1024 * 1024


@contextmanager
def spooled(rows: Iterable[Mapping[str, object]], provider: str) -> Iterator[IO[bytes]]:
    """Write rows to a temporary file that lasts for the block, each as a line of JSON.

    Raises ProviderTooBig above the caps, ProviderLater when the disk is full, and ProviderBrokenAnswer when
    there is no row.
    """
    count = 0
    with tempfile.TemporaryFile(buffering=PIECE_BYTES) as file:
        try:
            for count, row in enumerate(rows, 1):
                # A lone surrogate cannot be sent, and becomes a question mark.
                text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
                file.write(text.encode("utf-8", "replace") + b"\n")
                if count > MAX_ROWS or file.tell() > MAX_BYTES:
                    raise ProviderTooBig(
                        f"{provider} batch of more than {MAX_ROWS} rows or {MAX_BYTES} bytes"
                    )
            file.flush()
        except OSError as error:
            raise ProviderLater(
                f"the file of a {provider} batch cannot be written to {tempfile.gettempdir()}: "
                f"{error.strerror}",
                hint="make room there, or set TMPDIR to another folder",
            ) from None
        if not count:
            # The texts may have lost their last chunk meanwhile.
            raise ProviderBrokenAnswer(f"{provider} batch without rows")
        yield file


def multipart(kind: str, about: str, file: IO[bytes], file_headers: str = "") -> Upload:
    """Make a body of two parts: `about`, which is headers, an empty line and text, and the file."""
    boundary = f"memline{token_hex(16)}"
    file_headers += f"Content-Type: {CONTENT_TYPE}"
    head = f"--{boundary}\r\n{about}\r\n--{boundary}\r\n{file_headers}\r\n\r\n".encode()
    tail = f"\r\n--{boundary}--\r\n".encode()

    def pieces() -> Iterator[bytes]:
        file.seek(0)
        return chain([head], iter(partial(file.read, PIECE_BYTES), b""), [tail])

    size = len(head) + file.seek(0, os.SEEK_END) + len(tail)
    return Upload(content_type=f"multipart/{kind}; boundary={boundary}", size=size, pieces=pieces)


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Split pieces into lines without their ends. One above `MAX_LINE_BYTES` is cut, but stays above it."""
    pending = bytearray()
    for piece in pieces:
        first, *others = piece.split(b"\n")
        pending += first[: max(MAX_LINE_BYTES + 1 - len(pending), 0)]
        for other in others:
            yield bytes(pending)
            pending = bytearray(other)
    if pending:
        yield bytes(pending)
