"""Tell lines that were forgotten by their hash, and leave them out of a text."""

from __future__ import annotations

import hashlib
from collections.abc import Collection


def line_hash(line: str | bytes) -> bytes:
    """Return the SHA-256 (32 bytes) of a line without the blanks around it."""
    raw = line.encode("utf-8", "replace") if isinstance(line, str) else line
    return hashlib.sha256(raw.strip()).digest()


def without(text: str, lines: Collection[bytes]) -> str:
    """Blank the forgotten lines of a text out; those after them keep their numbers."""
    if not lines:
        return text
    kept = ("" if line.strip() and line_hash(line) in lines else line for line in text.split("\n"))
    return "\n".join(kept)
