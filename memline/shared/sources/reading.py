"""Read a file once: its text with lines as an editor counts them, hash and outcome; or some of its lines."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from memline.shared.clock import Clock, SystemClock
from memline.shared.errors import AccessDenied, PathNotAllowed
from memline.shared.note_names import MARKDOWN
from memline.shared.sources import outcomes
from memline.shared.sources.about import NoteName
from memline.shared.sources.outcomes import (
    EMPTY,
    FAILED,
    INDEXED,
    NOT_TEXT,
    TOO_LARGE,
    UNREADABLE,
    unreadable,
)
from memline.shared.sources.paths import FileLocation, MemoryPaths, is_private, is_transcript
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.values import to_json
from memline.shared.words import counted

#: A larger file is not read: it is not a note, and a chunk worker keeps it in memory several times over.
MAX_FILE_BYTES = 16 * 1024 * 1024

#: Largest share of characters that may be invalid UTF-8 or control characters: Latin-1 prose has 2-5 % of
#: accents, compressed bytes have more than a third of either.
MAX_BAD_SHARE = 0.1

#: How often a file that is being written is read before it is taken as it is.
_READ_ATTEMPTS = 3

#: The kernel's tick: a file stamped within the last one could change again without showing it.
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

    Never raises for what is on disk, never follows a link, never blocks. Of a file that changes while it is
    read, size and time are those from before the last attempt, so that the next scan finds a difference.
    """
    reading = Reading(outcome=FAILED, observed_ns=clock.now_ns())
    try:
        with os.fdopen(open_regular(root, os.path.relpath(absolute, root)), "rb", buffering=0) as file:
            if 0 <= reading.observed_ns - os.fstat(file.fileno()).st_ctime_ns < _TICK_NS:
                clock.sleep(_TICK_NS / 1e9)
            for attempt in range(_READ_ATTEMPTS):
                if attempt:
                    reading = replace(reading, observed_ns=clock.now_ns())
                reading = _stamped(reading, os.fstat(file.fileno()))
                if reading.size > MAX_FILE_BYTES:
                    most = f"notes of more than {MAX_FILE_BYTES / 1e6:.1f} MB are not read"
                    reason = f"{reading.size / 1e6:,.1f} MB, and {most}"
                    return replace(reading, outcome=TOO_LARGE, reason=reason)
                data = os.pread(file.fileno(), reading.size + 1, 0)
                if _stamped(reading, os.fstat(file.fileno())) == reading:
                    break
    except (FileRefused, OSError) as error:
        problem = error.problem if isinstance(error, FileRefused) else unreadable(error)
        if problem.outcome == UNREADABLE:
            # So that the next look knows whether anything has changed.
            with suppress(OSError):
                reading = _stamped(reading, os.lstat(absolute))
        return replace(reading, outcome=problem.outcome, reason=problem.reason)
    outcome, reason, text = decode(data)
    return replace(reading, outcome=outcome, reason=reason, text=text, sha256=sha256(data).hexdigest())


def _stamped(reading: Reading, status: os.stat_result) -> Reading:
    return replace(reading, size=status.st_size, mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns)


def decode(data: bytes) -> tuple[str, str, str]:
    """Decode a note's bytes, UTF-8 or what its byte order mark says: outcome, reason, text.

    A line ends at "\\n", "\\r\\n" or "\\r", as in an editor, and "\\n" stands for each. Bytes that are not
    UTF-8 become U+FFFD while they are few; the reason then tells how many.
    """
    encoding, start = next(
        ((name, len(mark)) for mark, name in _MARKS if data.startswith(mark)), ("utf-8", 0)
    )
    if encoding == "utf-8" and b"\0" in data:
        # Checked before decoding: most binary files are recognised here.
        return NOT_TEXT, "contains NUL bytes, as UTF-16 without its mark does", ""
    body = data[start:]
    bad = 0
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError:
        text = body.decode(encoding, "replace")
        bad = max(1, text.count("\ufffd") - body.count("\ufffd".encode(encoding)))
    if encoding != "utf-8" and "\0" in text:
        return NOT_TEXT, "contains NUL characters", ""
    controls = len(body) - len(body.translate(None, _CONTROLS)) if encoding == "utf-8" else 0
    if bad + controls > MAX_BAD_SHARE * len(text):
        return NOT_TEXT, f"{bad + controls} of {counted(len(text), 'character', 'are')} not text", ""
    if not text or text.isspace():
        return EMPTY, "nothing but white space" if data else "0 bytes", ""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    reason = f"{counted(bad, 'character', 'are')} not valid {encoding.upper()}, and replaced" if bad else ""
    return INDEXED, reason, text


#: Lines returned when the caller does not say how many; the original's later releases chose the same.
DEFAULT_LINES = 120

#: Characters returned at most: about 3,000 tokens of an agent's context.
MAX_CHARS = 12_000

#: One sentence for everything outside, so that a caller cannot learn from it what exists.
NOT_ALLOWED = "path is not an allowed Markdown memory file"
READABLE = "use a path as a search gives it (memory_search, or memline search QUERY)"

#: As a search prints it (a terminal with a score before and behind), and as editors write a place.
#: Texts, which `re` compiles when a place is read: a search reads none.
_CITATION = r"(?is)(?:[01]\.\d+\s+)?(.+?)#L(\d{1,9})(?:C(\d{1,9}))?(?:-L?(\d{1,9}))?(?:\s+\(.*\))?"
#: The path ends like that of a file: a title may be "At 10:30".
_ENDINGS = "|".join(map(re.escape, MARKDOWN))
_PLACE = rf"(?is)(.+?(?:{_ENDINGS}|\.jsonl[^\s:]*)):(\d{{1,9}})()(?:-(\d{{1,9}}))?(?::\d+(?::.*)?)?"

#: For a transcript that is not in the index: what was said is read from there, masked.
TRANSCRIPT = "there is no such past conversation in the index"


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a file: the JSON contract of `memline get`."""

    path: str
    text: str
    #: First line of the text, 1-based.
    first: int
    #: Number of its lines.
    lines: int
    #: Whether it is less than was asked for.
    truncated: bool
    #: Where to go on, behind a line that was cut, too; None at the end of the file.
    next_from: int | None
    #: Whether the line, or the turn, is longer than an answer.
    cut: bool = False
    #: What to ask for to read on in a line that was cut: `path#L5C12001`.
    rest: str = ""
    #: `ok`, or `not_found` for a memory file that is not there.
    status: str = "ok"
    #: The folder of the notes that answer.
    workspace: str = ""
    #: Notes that the whole note links to, in its order, and those that link to it, by path; not all of many.
    links: tuple[NoteName, ...] = ()
    total_links: int = 0
    backlinks: tuple[NoteName, ...] = ()
    total_backlinks: int = 0

    def to_json(self) -> dict[str, object]:
        return to_json(self, without=("first",)) | {"from": self.first}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a note or a past conversation is read."""

    first: int = 1
    #: None: DEFAULT_LINES.
    lines: int | None = None
    #: Where it begins in its first line, 1-based.
    column: int = 1
    max_chars: int = MAX_CHARS


def parse_citation(text: str) -> tuple[str, Part]:
    """Return the path and the part that `path#L5-L7` or `path:5-7` names; a plain path names no lines."""
    match = re.fullmatch(_CITATION, text.strip()) or re.fullmatch(_PLACE, text.strip())
    if match is None:
        return text, Part()
    # A selection that was made upwards has its last line first.
    first, last = sorted((int(match[2]), int(match[4] or match[2])))
    return match[1], Part(first=first, lines=last - first + 1, column=max(1, int(match[3] or 1)))


def read_excerpt(
    memory_paths: MemoryPaths,
    path: str,
    *,
    part: Part | None = None,
    private: bool = True,
    clock: Clock | None = None,
) -> Excerpt:
    """Read part of a memory file, from its beginning unless `part` says more: whole lines, at least one.

    A memory file that does not exist is an empty excerpt. Raises PathNotAllowed for all but a readable
    Markdown file of the memory, and AccessDenied for the long-term note when `private` is False.
    """
    if is_transcript(path.strip().removeprefix("./")):
        # Refused by the name alone: whether there is such a file must not be learned here.
        raise PathNotAllowed(TRANSCRIPT, hint="memline search QUERY --source sessions")
    located = memory_paths.locate(path.strip())
    if located is None:
        raise PathNotAllowed(NOT_ALLOWED, hint=READABLE)
    if not private and is_private(located.path):
        raise AccessDenied(
            "the long-term note is private: it is not read in a group, nor by a subagent",
            hint="ask in a direct chat; memory.privateInGroups in the configuration opens it to all",
        )
    return read_file_excerpt(located, part or Part(), clock=clock)


def read_file_excerpt(located: FileLocation, part: Part, *, clock: Clock | None = None) -> Excerpt:
    """Read lines of a file that may be read, following no link. Raises PathNotAllowed for what is no text."""
    reading = read_file(located.absolute, root=located.anchor, clock=clock or SystemClock())
    # A file that is there: no name that is too long for one.
    is_there = reading.ctime_ns > 0
    if is_there and reading.outcome in (outcomes.NOT_TEXT, outcomes.TOO_LARGE, outcomes.UNREADABLE):
        hint = outcomes.mend(reading.outcome, located.path)
        raise PathNotAllowed(f"{located.path} could not be read: {reading.reason}", hint=hint)
    if reading.outcome not in (outcomes.INDEXED, outcomes.EMPTY, outcomes.GONE):
        raise PathNotAllowed(NOT_ALLOWED, hint=READABLE)
    # A final line end closes the last line; it does not begin another.
    all_lines = reading.text.removesuffix("\n").split("\n") if reading.text else []
    excerpt = excerpt_of([(at, at, line) for at, line in enumerate(all_lines, 1)], located.path, part)
    return replace(excerpt, status="not_found") if reading.outcome == outcomes.GONE else excerpt


#: Lines that are read together: the numbers of the first and last one, and their text.
Passage = tuple[int, int, str]


def excerpt_of(passages: Sequence[Passage], path: str, part: Part) -> Excerpt:
    """Return whole passages of a file, as many as fit; the first may be cut."""
    first = max(1, part.first)
    last = first + (DEFAULT_LINES if part.lines is None else max(1, part.lines)) - 1
    ahead = [each for each in passages if each[1] >= first]
    asked = [each for each in ahead if each[0] <= last]
    texts, chars, skipped = list[str](), 0, part.column - 1
    for _, _, text in asked:
        if texts and chars + len(text) + 1 > part.max_chars:
            break
        texts.append(text[skipped : skipped + part.max_chars])
        chars += len(text) - skipped + 1
        skipped = 0
    begin = asked[0][0] if asked else first
    behind = part.column - 1 + part.max_chars
    is_cut = bool(asked) and len(asked[0][2]) > behind
    following = ahead[len(texts)][0] if len(texts) < len(ahead) else None
    is_all = part.lines is not None and len(texts) == len(asked)
    return Excerpt(
        path=path,
        text="\n".join(texts),
        first=begin,
        lines=asked[len(texts) - 1][1] - begin + 1 if texts else 0,
        truncated=is_cut or (following is not None and not is_all),
        next_from=following,
        cut=is_cut,
        rest=f"{path}#L{begin}C{behind + 1}" if is_cut else "",
    )
