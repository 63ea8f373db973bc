"""Read the lines of a session transcript: who wrote what, on which day.

A transcript is JSONL, one record a line; its format says what a record means. Only messages of the user and
the agent count, and of those only text: thinking, tool calls and their results, and records of any other kind
are left out. Any bytes are fine; a line that is not a record is counted and skipped, and a field of another
type than expected is ignored.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

from memline.shared.sessions.secrets import mask
from memline.shared.sources.transcripts.facts import Counts, TranscriptContext
from memline.shared.sources.transcripts.openclaw_files import FORMAT
from memline.shared.sources.transcripts.stores import TranscriptFormat, Turn
from memline.shared.values import replace, value

USER, ASSISTANT = "User", "Assistant"

#: Characters of the first user message that name a session without a title.
TITLE_CHARS = 80

#: Days by which a record may be ahead of the clock that reads it; a later one has no day.
_AHEAD_S = 86_400.0

#: 2001: what is earlier is not a time of a session.
_EARLIEST_S = 978_307_200.0

#: Control characters and lone surrogates, which neither a full-text index nor UTF-8 can hold, and characters
#: without width that may stand anywhere in a word, also in one that announces a secret.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\xad\u200b\u2060\ufeff\ud800-\udfff]")

_DECODER = json.JSONDecoder(strict=False)


@value
class Message:
    """What the user or the agent wrote, cleaned and redacted, on one line."""

    speaker: str
    text: str


class TranscriptParser:
    """Reads a transcript line by line, in order."""

    def __init__(
        self, context: TranscriptContext, counts: Counts, *, now: float, format: TranscriptFormat = FORMAT
    ) -> None:
        """`now` (s since the epoch) decides which days are in the future."""
        self.context = context
        self.counts = counts
        self._format = format
        self._relevant = re.compile(format.relevant)
        self._latest_s = now + _AHEAD_S

    def read_line(self, line: bytes) -> Message | None:
        """Return the message on the next line, if there is one. Never raises."""
        line = line.strip(b" \t\r\n\x00\xef\xbb\xbf")
        if not line:
            return None
        # What is not parsed counts as a record when it looks like one.
        record = parse(line) if self._relevant.search(line) else {}
        if record is None or not (line.startswith(b"{") and line.endswith(b"}")):
            self.counts = replace(self.counts, broken=self.counts.broken + 1)
            return None
        turn = self._format.read(record)
        if day := self._day_of(turn.stamps):
            self.context = replace(self.context, day=day)
        if isinstance(turn.title, str):
            title = _first_words(_cleaned(turn.title)[0])
            self.context = replace(self.context, title=title or self.context.title)
        return self._message(turn) if turn.role in ("user", "assistant") else None

    def _message(self, turn: Turn) -> Message | None:
        if turn.is_timer and not self.context.title:
            self.context = replace(self.context, is_muted=True)
        text, secrets = _cleaned(turn.text)
        if not text:
            return None
        if turn.role == "user":
            title = self.context.title or _first_words(text)
            self.context = replace(self.context, title=title, is_muted=False)
        if self.context.is_muted:
            return None
        counts, day = self.counts, self.context.day
        self.counts = replace(
            counts,
            messages=counts.messages + 1,
            secrets=counts.secrets + secrets,
            first_day=min(counts.first_day or day, day) if day else counts.first_day,
            last_day=max(counts.last_day, day),
        )
        return Message(speaker=USER if turn.role == "user" else ASSISTANT, text=text)

    def _day_of(self, stamps: tuple[object, ...]) -> str:
        for stamp in stamps:
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


def _cleaned(text: object) -> tuple[str, int]:
    """Return a text on one line, without secrets and control characters, and how many secrets it had.

    Empty for anything else.
    """
    if not isinstance(text, str):
        return "", 0
    clean, secrets = masked(text)
    return " ".join(clean.split()), secrets


def masked(text: str) -> tuple[str, int]:
    """Return a text without secrets and what may hide them, and how many secrets it had."""
    return mask(_UNPRINTABLE.sub("", text))


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
