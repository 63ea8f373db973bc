"""Read the end of a session: how full its model's window is, and what was said since the last compaction.

The provider's own count, which the last answer carries, is exact; what came after it counts with four
characters a token: thinking, tool calls and their results too, other than in the index.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.sessions.read_session import messages_of
from memline.shared.sessions.said import Records, parse, seconds_of
from memline.shared.sessions.stores import TranscriptFormat
from memline.shared.sources.safe_open import open_regular
from memline.shared.sources.tokens import CHARS_PER_TOKEN, estimate_tokens
from memline.shared.tables import as_dict, as_text

#: Bytes at the end of a transcript that are looked at: several windows of any model.
END_BYTES = 16 << 20

#: Pictures and signatures of thoughts, which take no window by their bytes.
_BLOB = re.compile(rb'"[A-Za-z0-9+/=_-]{1000,}"')


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What a session holds since its last compaction, as far as `END_BYTES` reach."""

    #: Tokens in the window of its model.
    tokens: int
    #: Bytes since the compaction.
    size: int
    #: When the compaction was, else the time of the first record; 0: no record says.
    began: float
    #: The model that answered last, as `provider/model`; empty when no record names it.
    model: str
    #: The records.
    lines: Sequence[bytes]


def read_end(path: Path) -> SessionEnd:
    """Read the end of a transcript of OpenClaw or Claude Code. Raises FileRefused and OSError."""
    with os.fdopen(open_regular(str(path.parent), path.name), "rb") as file:
        first = max(0, os.fstat(file.fileno()).st_size - END_BYTES)
        file.seek(first)
        lines = file.read(END_BYTES).split(b"\n")
    # Half a line at either end: of a longer file, and of a record that is being written.
    lines = lines[1 if first else 0 : -1]
    compaction: dict[str, Any] = {}
    for number in range(len(lines) - 1, -1, -1):
        if b"compact" in lines[number] and _is_compaction(record := parse(lines[number]) or {}):
            compaction, lines = record, lines[number + 1 :]
            break
    tokens, model = _window(lines)
    head = compaction or (parse(lines[0]) if lines else None) or {}
    return SessionEnd(
        tokens=tokens or estimate_tokens(as_text(compaction.get("summary"))),
        size=sum(map(len, lines)) + len(lines),
        began=seconds_of(head.get("timestamp")),
        model=model,
        lines=lines,
    )


def turns_of(end: SessionEnd, format: TranscriptFormat, *, now: float) -> list[str]:
    """Return what was said, as `User: …` and `Assistant: …`, with secrets masked."""
    records = Records((line + b"\n" for line in end.lines), format.relevant, format.identity)
    return [f"{each.role.capitalize()}: {each.text}" for each in messages_of(format.said(records), now=now)]


def newest(turns: Sequence[str], max_tokens: int) -> tuple[list[str], bool]:
    """Return the last turns that fit into `max_tokens`, and whether older ones were left out."""
    kept: deque[str] = deque()
    for turn in reversed(turns):
        max_tokens -= (tokens := estimate_tokens(turn))
        if max_tokens < 0:
            # One turn alone: its beginning says what it is about.
            return list(kept) or [turn[: len(turn) * (max_tokens + tokens) // tokens]], True
        kept.appendleft(turn)
    return list(kept), False


def _is_compaction(record: dict[str, Any]) -> bool:
    return record.get("type") == "compaction" or record.get("subtype") == "compact_boundary"


def _window(lines: Sequence[bytes]) -> tuple[int, str]:
    """Return the provider's last count with the estimate of what came after it, and the model."""
    estimated = 0
    for line in reversed(lines):
        record = parse(line) or {}
        message = as_dict(record.get("message"))
        if counted := _counted(message):
            names = [message.get("provider"), message.get("model")]
            return counted + estimated, "/".join(name for name in names if name and isinstance(name, str))
        estimated += len(_BLOB.sub(b"", line)) // CHARS_PER_TOKEN
    return estimated, ""


def _counted(message: dict[str, Any]) -> int:
    """Return the provider's count of the window after this message; 0 without a usable one."""
    usage = message.get("usage")
    is_usable = message.get("role") == "assistant" and message.get("stopReason") not in ("aborted", "error")
    if not is_usable or not isinstance(usage, dict):
        return 0
    total, *parts = (
        int(number) if isinstance(number, int | float) and number is not True and 0 < number < 1e9 else 0
        for number in map(usage.get, ("totalTokens", "input", "output", "cacheRead", "cacheWrite"))
    )
    return total or sum(parts)
