"""How large a session is for its model, read from its transcript: only what was added since the last look.

The provider's own count, which assistant records carry, is exact; what came after it is estimated with
everything that fills a window: thinking, tool calls and their results too, other than in the index.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from shared.sources.safe_open import open_regular
from shared.sources.tokens import estimate_tokens

#: Bytes at the beginning of a transcript that tell whether it is still the same one.
HEAD_BYTES = 1_024

#: Bytes read at a time.
_PIECE_BYTES = 1 << 20

#: A longer line is in no window of any model (2 million tokens), so it counts nothing.
_MAX_LINE_BYTES = 8 << 20

#: Arguments of tools are objects of the tool's own; nothing real is deeper.
_MAX_DEPTH = 20

#: Tokens of a picture, about, whatever its bytes.
_PICTURE_TOKENS = 1_200


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSize:
    """What is known of a transcript up to `offset`."""

    #: Bytes of whole lines that were counted.
    offset: int = 0
    #: SHA-256 (hex) of the first `head_bytes` bytes.
    head: str = ""
    head_bytes: int = 0
    #: Tokens at the last count of the provider, and the estimate of what came after.
    counted: int = 0
    estimated: int = 0
    #: Compactions so far, and where the last one stands.
    compactions: int = 0
    compacted_at: int = 0

    @property
    def tokens(self) -> int:
        return self.counted + self.estimated

    @property
    def bytes_since_compaction(self) -> int:
        return self.offset - self.compacted_at


def measure(folder: str, name: str, before: SessionSize) -> SessionSize:
    """The size of a transcript now; `before` is what an earlier look found.

    A file that shrank, or begins differently, is counted from its beginning. A last line without its end is
    left for the next look. Raises FileRefused for what is no regular file, OSError for what cannot be read.
    """
    opened = open_regular(folder, name)
    try:
        if os.fstat(opened).st_size < before.offset or _head(opened, before.head_bytes) != before.head:
            before = SessionSize()
        size = before
        if size.head_bytes < HEAD_BYTES:
            length = min(os.fstat(opened).st_size, HEAD_BYTES)
            size = replace(size, head=_head(opened, length), head_bytes=length)
        for end, line in lines_from(opened, before.offset):
            size = _with_line(size, line, end)
        return size
    finally:
        os.close(opened)


def _head(opened: int, length: int) -> str:
    return hashlib.sha256(os.pread(opened, length, 0)).hexdigest() if length else ""


def lines_from(opened: int, offset: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines from `offset` on with the offset behind each; one that is too long comes empty."""
    rest = b""
    skipped = 0
    while piece := os.pread(opened, _PIECE_BYTES, offset + skipped + len(rest)):
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        for line in lines:
            offset += skipped + len(line) + 1
            yield offset, b"" if skipped else line
            skipped = 0
        if len(rest) > _MAX_LINE_BYTES:
            skipped += len(rest)
            rest = b""


def _with_line(size: SessionSize, line: bytes, end: int) -> SessionSize:
    counted, estimated = size.counted, size.estimated
    compactions, compacted_at = size.compactions, size.compacted_at
    record = _record(line)
    kind = record.get("type")
    if kind == "compaction":
        # What was kept beside the summary is in the provider's next count.
        counted, estimated = 0, _tokens(record.get("summary"))
        compactions, compacted_at = compactions + 1, end
    elif kind == "message":
        message = record.get("message")
        message = message if isinstance(message, dict) else {}
        if total := _counted(message):
            counted, estimated = total, 0
        else:
            estimated += _tokens(message.get("content"))
    return replace(
        size,
        offset=end,
        counted=counted,
        estimated=estimated,
        compactions=compactions,
        compacted_at=compacted_at,
    )


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _counted(message: dict[str, Any]) -> int:
    """The provider's count of the window after this message; 0 when it has none that means anything."""
    usage = message.get("usage")
    if message.get("role") != "assistant" or not isinstance(usage, dict):
        return 0
    if message.get("stopReason") in ("aborted", "error"):
        return 0
    parts = [_number(usage.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite")]
    return _number(usage.get("totalTokens")) or sum(parts)


def _number(value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 < value < 1e9 else 0


def _tokens(content: Any, depth: int = 0) -> int:
    """Tokens of text at any depth; a picture counts as one, whatever its bytes."""
    if depth > _MAX_DEPTH:
        return 0
    if isinstance(content, str):
        return estimate_tokens(content)
    if isinstance(content, list):
        return sum(_tokens(item, depth + 1) for item in content)
    if isinstance(content, dict):
        if content.get("type") == "image":
            return _PICTURE_TOKENS
        return sum(_tokens(value, depth + 1) for name, value in content.items() if name not in ("type", "id"))
    return 0
