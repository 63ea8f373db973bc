"""How large a session is for its model, read from its transcript: only what was added since the last look.

The provider's own count, which assistant records carry, is exact; what came after it is estimated with
everything that fills a window: thinking, tool calls and their results too, other than in the index.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from shared.sources.safe_open import open_regular
from shared.sources.tokens import estimate_tokens
from shared.sources.transcripts import parse, seconds_of

#: Bytes at the beginning of a transcript that tell whether it is still the same one.
HEAD_BYTES = 1_024

#: Bytes read at a time.
PIECE_BYTES = 1 << 20

#: A longer line is in no window of any model (2 million tokens), so it counts nothing.
_MAX_LINE_BYTES = 8 << 20

#: Arguments of tools are objects of the tool's own; nothing real is deeper.
_MAX_DEPTH = 20

#: Tokens of a picture, about, whatever its bytes.
_PICTURE_TOKENS = 1_200

#: Records besides messages that a model is shown, and where their text is.
_SHOWN = {"custom_message": "content", "branch_summary": "summary"}


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
    #: Name of the compaction cycle: that of the record it began with, the last compaction or the first line.
    #: No number, because a transcript that is cut at its compaction has as many as before.
    cycle: str = ""
    #: The model that answered last, as `provider/model`; empty when no record says so.
    model: str = ""
    #: When the last record was made, by its own account (seconds since the epoch); 0: none says so.
    last_at: float = 0.0

    @property
    def tokens(self) -> int:
        return self.counted + self.estimated

    @property
    def bytes_since_compaction(self) -> int:
        return self.offset - self.compacted_at


def measure(folder: str, name: str, before: SessionSize) -> SessionSize:
    """The size of a transcript now; `before` is what an earlier look found. Raises as `measuring`."""
    *_, size = measuring(folder, name, before)
    return size


def measuring(folder: str, name: str, before: SessionSize) -> Iterator[SessionSize]:
    """The same, piece by piece, so that something else can be done in between; the last one is the size.

    A file that shrank, or begins differently, is counted from its beginning. A last line without its end is
    left for the next look. Raises FileRefused for what is no regular file, OSError for what cannot be read.
    """
    opened = open_regular(folder, name)
    try:
        size = before if is_continued(opened, before) else SessionSize()
        if size.head_bytes < HEAD_BYTES:
            length = min(os.fstat(opened).st_size, HEAD_BYTES)
            size = replace(size, head=_head(opened, length), head_bytes=length)
        told = size.offset
        for end, line in lines_from(opened, size.offset):
            size = _with_line(size, line, end)
            if size.offset - told >= PIECE_BYTES:
                told = size.offset
                yield size
        yield size
    finally:
        os.close(opened)


def is_continued(opened: int, size: SessionSize) -> bool:
    """Whether an open transcript still begins with what was measured."""
    return os.fstat(opened).st_size >= size.offset and _head(opened, size.head_bytes) == size.head


def _head(opened: int, length: int) -> str:
    return hashlib.sha256(os.pread(opened, length, 0)).hexdigest() if length else ""


def lines_from(opened: int, offset: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines from `offset` on with the offset behind each; one that is too long comes empty."""
    rest = b""
    skipped = 0
    while piece := os.pread(opened, PIECE_BYTES, offset + skipped + len(rest)):
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        for line in lines:
            offset += skipped + len(line) + 1
            yield offset, b"" if skipped else line
            skipped = 0
        if len(rest) > _MAX_LINE_BYTES:
            skipped += len(rest)
            rest = b""


def is_compaction(line: bytes) -> bool:
    """Whether a line is the record of a compaction."""
    return b'"compaction"' in line and _record(line).get("type") == "compaction"


def _with_line(size: SessionSize, line: bytes, end: int) -> SessionSize:
    counted, estimated, model = size.counted, size.estimated, size.model
    compactions, compacted_at = size.compactions, size.compacted_at
    cycle = size.cycle or _name(line)
    record = _record(line)
    kind = record.get("type")
    if kind == "compaction":
        # What was kept beside the summary is in the provider's next count.
        counted, estimated = 0, _tokens(record.get("summary"))
        compactions, compacted_at, cycle = compactions + 1, end, _name(line)
    elif kind == "message":
        message = record.get("message")
        message = message if isinstance(message, dict) else {}
        if total := _counted(message):
            counted, estimated = total, 0
            model = _model(message.get("provider"), message.get("model")) or model
        else:
            estimated += _tokens(message.get("content"))
    elif kind == "model_change":
        model = _model(record.get("provider"), record.get("modelId")) or model
    elif kind in _SHOWN:
        estimated += _tokens(record.get(_SHOWN[kind]))
    return replace(
        size,
        offset=end,
        counted=counted,
        estimated=estimated,
        compactions=compactions,
        compacted_at=compacted_at,
        cycle=cycle,
        model=model,
        last_at=seconds_of(record.get("timestamp")) or size.last_at,
    )


def _record(line: bytes) -> dict[str, Any]:
    return parse(line.strip(b" \t\r\n\x00\xef\xbb\xbf")) or {}


def _name(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


def _model(provider: Any, model: Any) -> str:
    if not isinstance(model, str) or not model:
        return ""
    # A lone surrogate could not be written down.
    name = f"{provider}/{model}" if isinstance(provider, str) and provider else model
    return name.encode("utf-8", "replace").decode()


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
        return sum(_tokens(value, depth + 1) for name, value in content.items() if not _is_around(name))
    return 0


def _is_around(name: str) -> bool:
    """Whether a field stands around what was said: kilobytes of a signature are not in the window as text."""
    return name in ("type", "id", "partialJson") or name.endswith("ignature")
