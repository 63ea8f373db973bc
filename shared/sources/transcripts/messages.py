"""Read the lines of a session transcript: who wrote what, on which day.

A transcript is JSONL, one record a line. Only messages of the user and the agent count, and of those only
text: thinking, tool calls and their results, and records of any other kind are left out. Any bytes are fine;
a line that is not a record is counted and skipped, and a field of another type than expected is ignored.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from memline.shared.sources.redaction import redact
from memline.shared.sources.transcripts.noise import assistant_words, is_timer, user_words
from memline.shared.sources.transcripts.progress import Counts, TranscriptContext

USER, ASSISTANT = "User", "Assistant"

#: Characters of the first user message that name a session without a title.
TITLE_CHARS = 80

#: Days by which a record may be ahead of the clock that reads it; a later one has no day.
_AHEAD_S = 86_400.0

#: 2001: what is earlier is not a time of a session.
_EARLIEST_S = 978_307_200.0

#: Records that are parsed. Results of tools are most of a transcript, and are known by this without parsing.
_RELEVANT = re.compile(rb'"role"\s*:\s*"(?:user|assistant)"|"type"\s*:\s*"(?:session|session_info)"')

#: Control characters and lone surrogates, which neither a full-text index nor UTF-8 can hold, and characters
#: without width that may stand anywhere in a word, also in one that announces a secret.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\xad\u200b\u2060\ufeff\ud800-\udfff]")

_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What the user or the agent wrote, cleaned and redacted, on one line."""

    speaker: str
    text: str


class TranscriptParser:
    """Reads a transcript line by line, in order."""

    def __init__(self, context: TranscriptContext, counts: Counts, *, now: float) -> None:
        """`now` (s since the epoch) decides which days are in the future."""
        self.context = context
        self.counts = counts
        self._latest_s = now + _AHEAD_S

    def read_line(self, line: bytes, *, is_counted: bool = True) -> Message | None:
        """Return the message on the next line, if there is one. Never raises.

        `is_counted` is False for a line that is read again.
        """
        counts = self.counts
        message = self._read(line)
        if not is_counted:
            self.counts = counts
        return message

    def _read(self, line: bytes) -> Message | None:
        line = line.strip(b" \t\r\n\x00\xef\xbb\xbf")
        if not line:
            return None
        # What is not parsed counts as a record when it looks like one.
        record = parse(line) if _RELEVANT.search(line) else {}
        if record is None or not (line.startswith(b"{") and line.endswith(b"}")):
            self.counts = replace(self.counts, broken=self.counts.broken + 1)
            return None
        kind, message = record.get("type"), record.get("message")
        if day := self._day_of(record):
            self.context = replace(self.context, day=day)
        if kind == "session_info":
            title = _first_words(_cleaned(record.get("name")))
            self.context = replace(self.context, title=title or self.context.title)
        elif kind == "message" and isinstance(message, dict):
            return self._message(message)
        return None

    def _message(self, message: dict[str, Any]) -> Message | None:
        role = message.get("role")
        if role not in ("user", "assistant"):
            return None
        raw = _text_of(message.get("content"))
        if not raw:
            return None
        if role == "user":
            provenance = message.get("provenance")
            if isinstance(provenance, dict) and provenance.get("kind") == "inter_session":
                # Another session of the agent wrote as the user.
                return None
            if not self.context.title and is_timer(raw):
                self.context = replace(self.context, is_muted=True)
        text = _cleaned(user_words(raw) if role == "user" else assistant_words(raw))
        if not text:
            return None
        if role == "user":
            title = self.context.title or _first_words(text)
            self.context = replace(self.context, title=title, is_muted=False)
        if self.context.is_muted:
            return None
        counts, day = self.counts, self.context.day
        self.counts = replace(
            counts,
            messages=counts.messages + 1,
            first_day=min(counts.first_day or day, day) if day else counts.first_day,
            last_day=max(counts.last_day, day),
        )
        return Message(speaker=USER if role == "user" else ASSISTANT, text=text)

    def _day_of(self, record: dict[str, Any]) -> str:
        message = record.get("message")
        stamps = [message.get("timestamp")] if isinstance(message, dict) else []
        for stamp in (*stamps, record.get("timestamp")):
            seconds = seconds_of(stamp)
            if _EARLIEST_S <= seconds <= self._latest_s:
                return datetime.fromtimestamp(seconds, UTC).date().isoformat()
        return ""


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the record on a line; None when it is not one. Never raises."""
    try:
        # The decoder takes what JSON forbids inside strings (control characters); bytes may be anything.
        record = _DECODER.decode(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        block["text"]
        for block in content
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    )


def _cleaned(text: object) -> str:
    """Return a text on one line, without secrets and control characters; empty for anything else."""
    return " ".join(redact(_UNPRINTABLE.sub("", text)).split()) if isinstance(text, str) else ""


def _first_words(text: str) -> str:
    if len(text) <= TITLE_CHARS:
        return text
    cut = text[: TITLE_CHARS + 1].rpartition(" ")[0]
    return (cut or text[:TITLE_CHARS]) + " …"


def seconds_of(stamp: object) -> float:
    """Return a time in seconds since the epoch; 0 for what is not one."""
    if isinstance(stamp, (int, float)) and not isinstance(stamp, bool):
        # 1e11 s is the year 5138: a larger number counts milliseconds.
        try:
            seconds = float(stamp) if stamp < 1e11 else stamp / 1000
        except OverflowError:
            return 0.0
        return seconds if math.isfinite(seconds) else 0.0
    if not isinstance(stamp, str) or not 10 <= len(stamp) <= 40:
        return 0.0
    try:
        moment = datetime.fromisoformat(stamp)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
