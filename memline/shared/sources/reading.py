"""Read a file once: its text with lines as an editor counts them, its hash, and its outcome."""

from __future__ import annotations

import codecs
import os
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from memline.shared.clock import Clock
from memline.shared.sources.outcomes import (
    EMPTY,
    FAILED,
    INDEXED,
    NOT_TEXT,
    TOO_LARGE,
    UNREADABLE,
    unreadable,
)
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.words import counted

#: A larger file is not read: it is not a note, and a chunk worker keeps it in memory several times over.
MAX_FILE_BYTES = 16 * 1024 * 1024

#: Largest share of characters in a text that may be invalid UTF-8, or control characters. Latin-1 prose has
#: 2-5 % of accents; of compressed or executable bytes more than a third are one or the other.
MAX_BAD_SHARE = 0.1

#: How often a file that is being written is read before it is taken as it is.
_READ_ATTEMPTS = 3

#: File systems stamp times with the kernel's tick, 10 ms at most. A file stamped within the last tick could
#: change again without showing it, so its reader waits for the next one.
_TICK_NS = 10_000_000

#: Control characters that no text has: all below the space but tab, line feed, form feed, return and escape.
_CONTROLS = bytes(sorted(set(range(32)) - {9, 10, 12, 13, 27}))

#: Byte order marks, longer ones first: the one of UTF-32-LE begins with that of UTF-16-LE.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one reading of a file gave."""

    #: `indexed` when there is text to index; else what the ledger is to say.
    outcome: str
    reason: str = ""
    #: Without byte order mark, every line end a "\\n"; empty unless `indexed`.
    text: str = ""
    #: Of the bytes; empty when they were not read.
    sha256: str = ""
    size: int = 0
    mtime_ns: int = 0
    #: When the inode changed: an edit that sets `mtime_ns` back moves it all the same.
    ctime_ns: int = 0
    #: Taken before the file was opened: whatever happened to it later is newer.
    observed_ns: int = 0


def read_file(absolute: str, *, root: str, clock: Clock) -> Reading:
    """Read a regular file below the trusted folder `root`; without text, the outcome says why.

    Never raises for what is on disk, never follows a link, never blocks on a FIFO or device. A file that
    changes while it is read is read again; if it goes on changing, the size and time from before the last
    attempt are reported, so that the next scan finds a difference.
    """
    reading = Reading(outcome=FAILED, observed_ns=clock.now_ns())
    try:
        opened = open_regular(root, os.path.relpath(absolute, root))
    except FileRefused as error:
        if error.problem.outcome == UNREADABLE:
            # So that the next look knows whether anything has changed.
            with suppress(OSError):
                reading = _stamped(reading, os.lstat(absolute))
        return replace(reading, outcome=error.problem.outcome, reason=error.problem.reason)
    try:
        if 0 <= reading.observed_ns - os.fstat(opened).st_ctime_ns < _TICK_NS:
            clock.sleep(_TICK_NS / 1e9)
        for attempt in range(_READ_ATTEMPTS):
            if attempt:
                reading = replace(reading, observed_ns=clock.now_ns())
            reading = _stamped(reading, os.fstat(opened))
            if reading.size > MAX_FILE_BYTES:
                found = f"{reading.size / 1e6:,.1f} MB"
                reason = f"{found}, and notes of more than {MAX_FILE_BYTES / 1e6:.1f} MB are not read"
                return replace(reading, outcome=TOO_LARGE, reason=reason)
            data = os.pread(opened, reading.size + 1, 0)
            if _stamped(reading, os.fstat(opened)) == reading:
                break
    except OSError as error:
        problem = unreadable(error)
        return replace(reading, outcome=problem.outcome, reason=problem.reason)
    finally:
        os.close(opened)
    decoded = decode(data)
    return replace(
        reading,
        outcome=decoded.outcome,
        reason=decoded.reason,
        text=decoded.text,
        sha256=sha256(data).hexdigest(),
    )


def _stamped(reading: Reading, status: os.stat_result) -> Reading:
    return replace(reading, size=status.st_size, mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns)


def decode(data: bytes) -> Reading:
    """Decode a note's bytes: UTF-8, or what its byte order mark says, with "\\n" for every line end.

    A line ends at "\\n", "\\r\\n" or "\\r", as in an editor; not at a form feed or U+2028. Bytes that are not
    UTF-8 become U+FFFD while they are few; the reason then tells how many.
    """
    encoding, start = next(
        ((name, len(mark)) for mark, name in _MARKS if data.startswith(mark)), ("utf-8", 0)
    )
    if encoding == "utf-8" and b"\0" in data:
        # Checked before decoding: most binary files are recognised here.
        return Reading(outcome=NOT_TEXT, reason="contains NUL bytes")
    body = data[start:]
    bad = 0
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError:
        text = body.decode(encoding, "replace")
        bad = max(1, text.count("\ufffd") - body.count("\ufffd".encode(encoding)))
    if encoding != "utf-8" and "\0" in text:
        return Reading(outcome=NOT_TEXT, reason="contains NUL characters")
    controls = len(body) - len(body.translate(None, _CONTROLS)) if encoding == "utf-8" else 0
    if bad + controls > MAX_BAD_SHARE * len(text):
        reason = f"{bad + controls} of {counted(len(text), 'character', 'are')} not text"
        return Reading(outcome=NOT_TEXT, reason=reason)
    if not text or text.isspace():
        return Reading(outcome=EMPTY, reason="nothing but white space" if data else "0 bytes")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    reason = f"{counted(bad, 'character', 'are')} not valid {encoding.upper()}, and replaced" if bad else ""
    return Reading(outcome=INDEXED, reason=reason, text=text)
