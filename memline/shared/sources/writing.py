"""Write to a workspace: append entries, make notes of an import, and take lines out to forget them.

What is added has the file's own ends of line. No link is followed, a lock keeps two writers from mixing their
lines, and a file that an editor replaces meanwhile is not written to under its old name. Whatever a model
wrote, its entry is one item of a list: it cannot become a heading, be part of a code block, or begin another.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from zoneinfo import ZoneInfo

import msgspec

from memline.shared.clock import Clock, SystemClock
from memline.shared.errors import PathNotAllowed
from memline.shared.sources.markdown import end_of_block
from memline.shared.sources.paths import MemoryPaths
from memline.shared.sources.reading import MAX_FILE_BYTES
from memline.shared.sources.safe_open import folder_of, open_checked

#: Seconds to wait for another writer, and between two attempts to lock.
LOCK_TIMEOUT_S = 5.0
_LOCK_EVERY_S = 0.02

#: How often the file may be replaced meanwhile before we give up.
_APPEND_ATTEMPTS = 5

#: UTF-16 and UTF-32: UTF-8 behind these would be noise.
_OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")

#: Everything that some program takes for the end of a line.
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

#: Control characters, lone surrogates, and marks that turn the direction of text around.
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufeff]")

#: What begins a block in Markdown: headings and their underlines, fences, rules.
_STRUCTURE = re.compile(r"(#{1,6}(\s|$)|=+\s*$|-+\s*$|(\*\s*){3,}$|(_\s*){3,}$|```|~~~|<!--)")


class AppendRefused(PathNotAllowed):
    """The file cannot be added to; the message says why, and the file is as it was."""


class AppendResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was added; with no lines, nothing was."""

    #: As in the ledger, e.g. `memory/2026-02-03.md`.
    path: str
    #: First and last line of what was added, 1-based; 0 when nothing was.
    start_line: int = 0
    end_line: int = 0
    #: Bytes of the file now; 0 when nothing was added.
    size: int = 0


def append(
    root: str,
    relative: str,
    make: Callable[[str], str],
    *,
    max_bytes: int = MAX_FILE_BYTES,
    clock: Clock | None = None,
) -> AppendResult:
    """Add what `make` makes of the present text to the end of the file `relative` below the folder `root`.

    `make` is called while the file is locked, perhaps more than once; an empty text adds nothing. Missing
    folders and files are made; none grows beyond `max_bytes`. Raises AppendRefused.
    """
    file_path = os.path.join(root, relative)
    try:
        if not os.path.lexists(file_path) and not make("").strip("\n"):
            return AppendResult(path=relative)
        for _ in range(_APPEND_ATTEMPTS):
            with folder_of(root, relative, make=True) as (folder, name):
                file = open_checked(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, folder)
                try:
                    _lock(file, clock or SystemClock())
                    # An editor may have put another file in its place.
                    if _is_same(file, folder, name):
                        return _append(file, relative, make, max_bytes)
                finally:
                    os.close(file)
    except PathNotAllowed as error:
        raise _refused(relative, error.message, error.hint) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
            reason = "a symbolic link or a file is in its way"
        raise _refused(relative, reason, f"check {file_path}") from error
    raise _refused(relative, "it is replaced all the time", "try again later")


def _refused(relative: str, reason: str, hint: str) -> AppendRefused:
    return AppendRefused(f"{relative} cannot be added to: {reason}", hint=hint)


def _lock(file: int, clock: Clock) -> None:
    until = clock.now() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                # A file system without locks: O_APPEND alone keeps additions apart.
                return
        if clock.now() > until:
            raise AppendRefused("another program keeps it locked", hint="try again later")
        clock.sleep(_LOCK_EVERY_S)


def _is_same(file: int, folder: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), os.stat(name, dir_fd=folder, follow_symlinks=False))
    return False


def _append(file: int, relative: str, make: Callable[[str], str], max_bytes: int) -> AppendResult:
    """Add the lines to an open file that is locked."""
    size = os.fstat(file).st_size
    _check_size(size, max_bytes)
    data = os.pread(file, size, 0)
    if data.startswith(_OTHER_ENCODINGS):
        raise AppendRefused("it is not UTF-8", hint="save it as UTF-8, then try again")
    if b"\0" in data:
        # It is not read, so the entry would not be found.
        raise AppendRefused("it contains NUL bytes", hint="take them out, then try again")
    before = data.decode("utf-8", "replace")
    made = make(before).rstrip("\n")
    added = made.lstrip("\n")
    if not added:
        return AppendResult(path=relative)
    # A line ends at "\n", "\r\n" or "\r", as in `shared.sources.reading`.
    text = before.replace("\r\n", "\n").replace("\r", "\n")
    gap = "" if not text or text.endswith("\n") else "\n"
    gap += end_of_block(text.split("\n"))
    end = "\r\n" if "\r\n" in before else "\n"
    content = f"{gap}{made}\n".replace("\n", end).encode("utf-8", "replace")
    _check_size(size + len(content), max_bytes)
    _write(file, content, size)
    first = f"{text}{gap}".count("\n") + 1 + len(made) - len(added)
    last = first + added.count("\n")
    return AppendResult(path=relative, start_line=first, end_line=last, size=size + len(content))


def _write(file: int, content: bytes, size: int) -> None:
    written = 0
    try:
        while written < len(content):
            written += os.write(file, content[written:])
        os.fsync(file)
    except OSError:
        # Half an entry is worse than none. A program without locks may have added something behind it.
        if os.fstat(file).st_size == size + written:
            os.ftruncate(file, size)
        raise


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise AppendRefused(
            f"it would have {size} bytes, {max_bytes} are allowed",
            hint="add less, or let a person tidy the note up",
        )


def local_time(now: float, zone: str = "") -> datetime:
    """Return the moment in the time zone of this IANA name, else in that of the machine."""
    if zone:
        # A machine without a time zone database takes its own; the configuration was checked on another.
        with suppress(KeyError, ValueError):
            return datetime.fromtimestamp(now, ZoneInfo(zone))
    return datetime.fromtimestamp(now).astimezone()


def log_path(paths: MemoryPaths, day: date) -> str:
    """Return the path of the log of a day: in `memory/`, or at the root of a folder that is read whole."""
    return f"{'' if paths.is_whole else 'memory/'}{day.isoformat()}.md"


def visible(text: str) -> str:
    """Return `text` without what cannot be seen or stored, its lines ended by "\\n"."""
    return _INVISIBLE.sub("", _LINE_ENDS.sub("\n", text))


def is_empty(text: str) -> bool:
    """Tell whether a text has no character but blanks, marks of Markdown and what cannot be seen."""
    return not _INVISIBLE.sub("", text).strip("#=-*_`~\\ \t\r\n\v\f\x85\u2028\u2029")


def daily_entry(text: str, moment: datetime) -> str:
    """Return an entry of a daily log: `- 14:32 text`."""
    return _item(text, f"{moment:%H:%M} ")


def long_term_entry(text: str, moment: datetime) -> str:
    """Return an entry of the long-term note: `- text (2026-02-10)`."""
    return f"{_item(text, '')} ({moment.date().isoformat()})"


def _item(text: str, label: str) -> str:
    kept = []
    for line in _LINE_ENDS.sub("\n", text).split("\n"):
        if shown := _INVISIBLE.sub("", line.replace("\t", " ")).strip():
            kept.append(f"\\{shown}" if _STRUCTURE.match(shown) else shown)
    # Lines that go on are indented, so that they belong to the item.
    return f"- {label}" + "\n  ".join(kept) if kept else ""


#: Lines with their ends, as `shared.sources.reading` counts them.
_LINES = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+$")


def remove_lines(root: str, relative: str, first: int, last: int, expected: bytes) -> bool:
    """Take lines out of a note (1-based, inclusive), or delete it when nothing is left of it.

    False when the note no longer has the bytes `expected`: it changed, and nothing is done. Raises
    PathNotAllowed and OSError.
    """
    with folder_of(root, relative) as (folder, name):
        opened = open_checked(name, os.O_RDWR, folder)
        with os.fdopen(opened, "rb") as file:
            with suppress(OSError):
                # Entries are added under the same lock (`append`).
                fcntl.flock(opened, fcntl.LOCK_EX)
            status = os.fstat(opened)
            if file.read() != expected:
                return False
            lines = _LINES.findall(expected)
            kept = b"".join([*lines[: first - 1], *lines[last:]])
            if not kept.strip():
                os.unlink(name, dir_fd=folder)
                return True
            part = f".{name}.part"
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(part, flags, 0o600, dir_fd=folder), "wb") as rest:
                rest.write(kept)
                rest.flush()
                os.fchmod(rest.fileno(), status.st_mode & 0o7777)
                os.fsync(rest.fileno())
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            return True
