"""Read a session's transcript: how large it is for its model, and the end of its conversation.

The provider's own count, which assistant records carry, is exact; what came after it is estimated with
everything that fills a window: thinking, tool calls and their results too, other than in the index. Only what
was added since the last measurement is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.sources.tokens import estimate_tokens
from memline.shared.sources.transcripts.progress import Counts, TranscriptContext
from memline.shared.sources.transcripts.transcript_lines import Message, TranscriptParser, parse, seconds_of
from memline.shared.tables import as_dict
from memline.shared.values import replace, value

#: Bytes at the beginning of a transcript that tell whether it is still the same one.
HEAD_BYTES = 1_024

#: Bytes read at a time.
PIECE_BYTES = 1 << 20

#: A longer line fits into no window of any model (2 million tokens), so it counts nothing.
_MAX_LINE_BYTES = 8 << 20

#: Arguments of tools are objects of the tool's own; nothing real is deeper.
_MAX_DEPTH = 20

#: Tokens of a picture, about, whatever its bytes.
_PICTURE_TOKENS = 1_200

#: Fields that no model is shown.
_METADATA = ("type", "id", "partialJson")

#: Marks of Claude Code's records that are no turns of the conversation with the user.
_CLAUDE_ASIDES = ("isSidechain", "isMeta", "isCompactSummary")

#: Records besides messages that a model is shown, and where their text is.
_SHOWN = {"custom_message": "content", "branch_summary": "summary"}


@value
class SessionSize:
    """The size of a transcript up to `offset`."""

    #: Bytes of whole lines that were counted.
    offset: int = 0
    #: Time of the file (ns) when it was counted to its end.
    changed_ns: int = 0
    #: SHA-256 (hex) of the first `head_bytes` bytes.
    head: str = ""
    head_bytes: int = 0
    #: Tokens at the last count of the provider, and the estimate of what came after.
    counted: int = 0
    estimated: int = 0
    #: Compactions so far, and the end of the last one in bytes.
    compactions: int = 0
    compacted_at: int = 0
    #: Name of the compaction cycle: the digest of the record it began with, the last compaction or the first
    #: line. Not a number, because a transcript that is cut at its compaction has as many as before.
    cycle: str = ""
    #: The model that answered last, as `provider/model`; empty when no record names it.
    model: str = ""
    #: Time of the last record that names one, in seconds since the epoch; 0: none does.
    last_at: float = 0.0

    @property
    def tokens(self) -> int:
        return self.counted + self.estimated

    @property
    def bytes_since_compaction(self) -> int:
        return self.offset - self.compacted_at


def measure(folder: str, name: str, before: SessionSize, *, max_bytes: int = sys.maxsize) -> SessionSize:
    """Measure a transcript on from its last measurement, about `max_bytes` of it.

    A file that shrank, or begins differently, is counted from its beginning. A last line without its end is
    left for the next time. Raises FileRefused for what is not a regular file, else OSError.
    """
    with _opened(folder, name) as file:
        status = os.fstat(file.fileno())
        size = before if _is_continued(file, before) else SessionSize()
        if size.head_bytes < HEAD_BYTES:
            length = min(status.st_size, HEAD_BYTES)
            size = replace(size, head=_head(file, length), head_bytes=length)
        enough = size.offset + max_bytes
        for end, line in _lines_from(file, size.offset):
            size = _add_line(size, line, end)
            if enough <= end < status.st_size:
                return size
        return replace(size, changed_ns=status.st_mtime_ns)


def recent_turns(
    folder: Path, name: str, size: SessionSize, *, start: int, max_tokens: int, now: float
) -> tuple[list[str], bool]:
    """Read `User: …` and `Assistant: …` from the byte `start` of a transcript to the next compaction, masked.

    The flag tells whether older turns were left out to stay within `max_tokens`. A transcript that is gone
    has no turns. `size` is its measurement; one that was rewritten since is read from its beginning.
    """
    parser = TranscriptParser(TranscriptContext(), Counts(), now=now)
    turns = _Turns(max_tokens)
    with suppress(FileRefused), _opened(str(folder), name) as file:
        is_same = _is_continued(file, size)
        for _, line in _lines_from(file, start if is_same else 0):
            if is_same and b'"compaction"' in line and _record(line).get("type") == "compaction":
                break  # The rest belongs to the next cycle.
            turns.add(parser.read_line(line))
    return turns.end()


def claude_turns(path: Path, *, max_tokens: int, now: float) -> tuple[list[str], bool]:
    """Read the turns of a Claude Code transcript since its last compaction, as `recent_turns` does.

    Subagents, what the program says in the user's name, and the summary of a compaction are left out.
    """
    parser = TranscriptParser(TranscriptContext(), Counts(), now=now)
    turns = _Turns(max_tokens)
    with suppress(FileRefused), _opened(str(path.parent), path.name) as file:
        end = os.fstat(file.fileno()).st_size
        for offset, line in _lines_from(file, 0):
            if offset > end:
                break  # Of the compaction that follows.
            record = _record(line) if b'"message"' in line or b'"compact_boundary"' in line else {}
            if record.get("subtype") == "compact_boundary":
                turns = _Turns(max_tokens)
            elif record.get("type") in ("user", "assistant") and not any(map(record.get, _CLAUDE_ASIDES)):
                message = {"type": "message", **{name: record.get(name) for name in ("timestamp", "message")}}
                turns.add(parser.read_line(json.dumps(message).encode()))
    return turns.end()


class _Turns:
    """The last turns of a conversation that fit into `max_tokens`."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._turns: deque[tuple[str, int]] = deque()
        self._tokens = 0
        self._is_cut = False

    def add(self, message: Message | None) -> None:
        """Add what follows; None is a record without words."""
        if message is None:
            return
        turn = f"{message.speaker}: {message.text}"
        self._turns.append((turn, estimate_tokens(turn)))
        self._tokens += self._turns[-1][1]
        while self._tokens > self._max_tokens and len(self._turns) > 1:
            self._tokens -= self._turns.popleft()[1]
            self._is_cut = True

    def end(self) -> tuple[list[str], bool]:
        """Return the turns, and whether older ones were left out."""
        texts = [turn for turn, _ in self._turns]
        if self._tokens > self._max_tokens:
            # One turn alone: its beginning says what it is about.
            return [texts[0][: len(texts[0]) * self._max_tokens // self._tokens]], True
        return texts, self._is_cut


def _opened(folder: str, name: str) -> BinaryIO:
    return os.fdopen(open_regular(folder, name), "rb", PIECE_BYTES)


def _is_continued(file: BinaryIO, size: SessionSize) -> bool:
    """Tell whether an open transcript still begins with what was measured."""
    return os.fstat(file.fileno()).st_size >= size.offset and _head(file, size.head_bytes) == size.head


def _head(file: BinaryIO, length: int) -> str:
    return hashlib.sha256(os.pread(file.fileno(), length, 0)).hexdigest() if length else ""


def _lines_from(file: BinaryIO, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines from `offset` on with the offset behind each; one that is too long is empty."""
    file.seek(offset)
    is_too_long = False
    while piece := file.readline(_MAX_LINE_BYTES):
        offset += len(piece)
        if piece.endswith(b"\n"):
            yield offset, b"" if is_too_long else piece[:-1]
        is_too_long = not piece.endswith(b"\n")


def _add_line(size: SessionSize, line: bytes, end: int) -> SessionSize:
    record = _record(line)
    kind = record.get("type")
    changes: dict[str, Any] = {
        "offset": end,
        "cycle": size.cycle or _digest(line),
        "last_at": seconds_of(record.get("timestamp")) or size.last_at,
    }
    added = 0
    if kind == "compaction":
        # What was kept beside the summary is in the provider's next count.
        changes |= {"counted": 0, "estimated": _tokens(record.get("summary")), "cycle": _digest(line)}
        changes |= {"compactions": size.compactions + 1, "compacted_at": end}
    elif kind == "message":
        message = as_dict(record.get("message"))
        if counted := _counted(message):
            model = _model(message.get("provider"), message.get("model"))
            changes |= {"counted": counted, "estimated": 0, "model": model or size.model}
        else:
            added = _tokens(message.get("content"))
    elif kind == "model_change":
        changes["model"] = _model(record.get("provider"), record.get("modelId")) or size.model
    elif isinstance(kind, str) and kind in _SHOWN:
        added = _tokens(record.get(_SHOWN[kind]))
    return replace(size, **{"estimated": size.estimated + added, **changes})


def _record(line: bytes) -> dict[str, Any]:
    return parse(line.strip(b" \t\r\n\x00\xef\xbb\xbf")) or {}


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


def _model(provider: Any, model: Any) -> str:
    names = [name for name in (provider, model) if isinstance(name, str) and name]
    # A lone surrogate could not be written down.
    return "/".join(names).encode("utf-8", "replace").decode() if model in names else ""


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


def _tokens(content: Any, depth: int = 0) -> int:
    """Estimate the tokens of text at any depth; a picture counts as one, whatever its bytes."""
    match content:
        case _ if depth > _MAX_DEPTH:
            return 0
        case str():
            return estimate_tokens(content)
        case list():
            return sum(_tokens(item, depth + 1) for item in content)
        case {"type": "image"}:
            return _PICTURE_TOKENS
        case dict():
            # Metadata is not shown to the model: kilobytes of a signature do not fill its window.
            shown = (name for name in content if not name.endswith("ignature") and name not in _METADATA)
            return sum(_tokens(content[name], depth + 1) for name in shown)
    return 0
