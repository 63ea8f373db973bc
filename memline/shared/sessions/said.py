"""Read what was said in a session: records in their order, and the message that each one holds.

A session is JSONL, one record a line, whatever program wrote it. A program's module says what its records
mean, in one generator, `said(records)`: messages of the user and the agent as text. Thinking, tool calls and
their results are left out, and so is what was taken back.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec

from memline.shared.values import as_dict, as_list

#: Longest line that is read. A message with images in it has a few megabytes.
MAX_LINE_BYTES = 64 << 20

# It takes what JSON forbids inside strings: control characters.
_DECODER = json.JSONDecoder(strict=False)

#: A record of a session: the number of its line, from 1, and its content.
Record = tuple[int, dict[str, Any]]


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says. A title alone has no role."""

    #: Number of its line, from 1.
    line: int
    #: `user` or `assistant`; empty when it is not a message.
    role: str = ""
    text: str = ""
    #: What the session is called from here on.
    title: str = ""
    #: When it was written, in seconds since the epoch; 0 when no record says.
    at: float = 0.0


class Records:
    """The records of a session: iterate once, then ask for the counts."""

    def __init__(self, lines: Iterable[bytes], relevant: bytes, identity: str = "") -> None:
        """`relevant` matches the lines that are parsed: results of tools are most of a session.

        A record is read once: of several with the same `identity`, a field, or on the same line, the first.
        """
        self._lines = lines
        self._relevant = re.compile(relevant)
        self._identity = identity
        #: Lines that were read; half a record at the end is not.
        self.lines = 0
        #: Lines that are no record.
        self.broken = 0
        #: SHA-256 of the lines that were read.
        self.digest = sha256()

    def __iter__(self) -> Iterator[Record]:
        seen: set[str | bytes] = set()
        for raw in self._lines:
            line = raw.strip(b" \t\r\n\x00\xef\xbb\xbf")
            is_relevant = self._relevant.search(line) is not None
            # What is not parsed counts as a record when it looks like one.
            record = parse(line) if is_relevant else {}
            is_record = record is not None and line.startswith(b"{") and line.endswith(b"}")
            if not raw.endswith(b"\n") and not (is_relevant and is_record):
                # Half a record, or one without a message yet: it is read with its end.
                return
            self.lines += 1
            self.digest.update(raw)
            if line and not is_record:
                self.broken += 1
            elif record:
                key = record.get(self._identity)
                if not isinstance(key, str) and "timestamp" in record:
                    key = sha256(line).digest()
                if key not in seen:
                    yield self.lines, record
                if isinstance(key, str | bytes):
                    seen.add(key)


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the record on a line; None when it is not one. Never raises."""
    try:
        record = _DECODER.decode(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def seconds_of(stamp: object) -> float:
    """Return a time in seconds since the epoch; 0 for what is not one."""
    try:
        if isinstance(stamp, str) and 10 <= len(stamp) <= 40:
            moment = datetime.fromisoformat(stamp)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if isinstance(stamp, int | float) and not isinstance(stamp, bool):
            # 1e11 s is the year 5138: a larger number counts milliseconds.
            seconds = float(stamp) if stamp < 1e11 else stamp / 1000
            return seconds if math.isfinite(seconds) else 0.0
    except (ValueError, OverflowError):
        pass
    return 0.0


def text_of(content: object, kind: str = "text") -> str:
    """Return the text of a message: a text, or the blocks among others that are of a kind, or of none."""
    if isinstance(content, str):
        return content
    blocks = [each for each in map(as_dict, as_list(content)) if each.get("type", kind) == kind]
    return "\n".join(each["text"] for each in blocks if isinstance(each.get("text"), str))


def marks(names: str) -> re.Pattern[str]:
    """Return the pattern of `<name>` and `</name>`; in a code span they are words."""
    return re.compile(rf"(?<!`)<(/?)({names})>", re.IGNORECASE)


def without_marked(text: str, mark: re.Pattern[str]) -> str:
    """Return a message without what a program wrote between marks. One that is not closed is a word.

    A message that begins with such a mark was interrupted: nothing of it is left.
    """
    every = list(mark.finditer(text))
    last_end = {each[2].lower(): each.start() for each in every if each[1]}
    pieces, done, inside, is_begun = list[str](), 0, "", False
    for each in every:
        name = each[2].lower()
        if inside:
            if each[1] and name == inside:
                done, inside = each.end(), ""
        elif not each[1] and last_end.get(name, -1) > each.start():
            pieces.append(text[done : each.start()])
            inside = name
        elif not each[1] and not is_begun:
            is_begun = bool("".join((*pieces, text[done : each.start()])).strip())
            if not is_begun:
                return ""
    return "".join((*pieces, text[done:]))
