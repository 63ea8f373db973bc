"""Hash bytes. Loading OpenSSL for `hashlib` takes 3 ms, which a search by keywords never needs."""

from __future__ import annotations

from io import BufferedReader
from typing import Protocol


class Digest(Protocol):
    """A digest of the bytes so far, as `hashlib` makes it."""

    def update(self, content: bytes, /) -> None: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


def sha256(content: bytes = b"") -> Digest:
    """Return the SHA-256 of bytes."""
    import hashlib

    return hashlib.sha256(content)


def file_sha256(file: BufferedReader) -> str:
    """Return the SHA-256 of the rest of a file, in hex digits."""
    import hashlib

    return hashlib.file_digest(file, "sha256").hexdigest()


def shake_256(content: bytes, length: int) -> bytes:
    """Return that many bytes of the SHAKE-256 of bytes."""
    import hashlib

    return hashlib.shake_256(content).digest(length)
