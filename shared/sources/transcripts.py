"""Lines of a session transcript: who said what, on which day.

A transcript is JSONL, one record a line. Only messages of the user and the agent count, and of those only
text: thinking, tool calls and their results, and records of any other kind are left out. Any bytes are fine;
a line that is no record is counted and passed over.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from shared.sources.masking import mask
from shared.sources.transcript_noise import assistant_words, is_timer, user_words
from shared.sources.transcript_progress import Counts, Standing

USER, ASSISTANT = "User", "Assistant"

#: Characters of the first user message that name a session without a title.
TITLE_CHARS = 80

#: Days by which a record may be ahead of the clock that reads it; a later one has no day.
_AHEAD_S = 86_400.0

#: 2001: numbers below are seconds, numbers above milliseconds; and what is earlier is no time of a session.
_EARLIEST_S = 978_307_200.0

#: Records that are parsed. Results of tools are most of a transcript, and are known by this without parsing.
_RELEVANT = re.compile(rb'"role"\s*:\s*"(?:user|assistant)"|"type"\s*:\s*"(?:session|session_info)"')

#: Control characters and lone surrogates, which neither a full-text index nor UTF-8 can hold, and characters
#: without width that may stand anywhere in a word, also in one that announces a secret.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\xad\u200b\u2060\ufeff\ud800-\udfff]")

_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something that was said, cleaned and masked, on one line."""

    speaker: str
    text: str


class Talk:
    """Reads a transcript line by line, in order."""

    def __init__(self, standing: Standing, counts: Counts, *, now: float) -> None:
        """`now` (s since the epoch) tells which days lie in the future."""
        self.standing = standing
        self.counts = counts
        self._latest_s = now + _AHEAD_S

    def take(self, line: bytes, *, is_counted: bool = True) -> Message | None:
        """What was said on the next line, if anything was. Never raises.

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
        if not _RELEVANT.search(line):
            self._pass_over(line)
            return None
        record = parse(line)
        if record is None:
            self._count(broken=1)
            return None
        kind = record.get("type")
        day = self._day_of(record)
        if day:
            self.standing = replace(self.standing, day=day)
        if kind == "session_info":
            self._name(record.get("name"))
        elif kind == "message" and isinstance(record.get("message"), dict):
            return self._message(record["message"])
        return None

    def _pass_over(self, line: bytes) -> None:
        if not (line.startswith(b"{") and line.endswith(b"}")):
            self._count(broken=1)

    def _message(self, message: dict[str, Any]) -> Message | None:
        role = message.get("role")
        if role not in ("user", "assistant"):
            return None
        raw = _text_of(message.get("content"))
        if not raw:
            return None
        if role == "user":
            if _is_from_session(message.get("provenance")):
                return None
            if not self.standing.title and is_timer(raw):
                self.standing = replace(self.standing, is_muted=True)
        words = user_words(raw) if role == "user" else assistant_words(raw)
        text = _one_line(mask(_UNPRINTABLE.sub("", words))) if words else ""
        if not text:
            return None
        if role == "user":
            title = self.standing.title or _first_words(text)
            self.standing = replace(self.standing, title=title, is_muted=False)
        if self.standing.is_muted:
            return None
        self._count(messages=1)
        self._count_day(self.standing.day)
        return Message(speaker=USER if role == "user" else ASSISTANT, text=text)

    def _name(self, name: object) -> None:
        title = _first_words(_one_line(mask(_UNPRINTABLE.sub("", name)))) if isinstance(name, str) else ""
        if title:
            self.standing = replace(self.standing, title=title)

    def _day_of(self, record: dict[str, Any]) -> str:
        message = record.get("message")
        stamps = [message.get("timestamp")] if isinstance(message, dict) else []
        for stamp in (*stamps, record.get("timestamp")):
            seconds = seconds_of(stamp)
            if _EARLIEST_S <= seconds <= self._latest_s:
                return datetime.fromtimestamp(seconds, UTC).date().isoformat()
        return ""

    def _count(self, *, messages: int = 0, broken: int = 0) -> None:
        counts = self.counts
        self.counts = replace(
            counts,
            messages=counts.messages + messages,
            broken=counts.broken + broken,
        )

    def _count_day(self, day: str) -> None:
        if day:
            counts = self.counts
            self.counts = replace(
                counts,
                first_day=min(counts.first_day or day, day),
                last_day=max(counts.last_day, day),
            )


def parse(line: bytes) -> dict[str, Any] | None:
    """The record on a line; None when it is none. Never raises."""
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


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _first_words(text: str) -> str:
    if len(text) <= TITLE_CHARS:
        return text
    cut = text[: TITLE_CHARS + 1].rpartition(" ")[0]
    return (cut or text[:TITLE_CHARS]) + " …"


def seconds_of(stamp: object) -> float:
    """A time in seconds since the epoch; 0 for what is none."""
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


def _is_from_session(provenance: object) -> bool:
    """Whether another session of the agent wrote as the user."""
    return isinstance(provenance, dict) and provenance.get("kind") == "inter_session"
