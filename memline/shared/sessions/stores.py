"""Find and open the sessions of a program: files below a folder, or rows of a database.

Ledger paths are `sessions/<name>` for OpenClaw's, `sessions/<program>/<name>` for others. No note can have
one: none has a name that ends like a transcript. What is gone from the disk stays in the index until it is
forgotten, so nothing here has to tell a session that was deleted from one that cannot be listed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from sqlite3 import Connection
from typing import BinaryIO, Protocol, Self

import msgspec

from memline.shared.config.schema import AgentSettings
from memline.shared.sessions.said import MAX_LINE_BYTES, SaidIn
from memline.shared.sources.discover import DiscoveredFile, Discovery, discovered, first_link, status_of
from memline.shared.sources.outcomes import FAILED, GONE, Problem, code
from memline.shared.sources.paths import FileLocation, is_storable, is_transcript_name
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.sqlite import library, reading_foreign


class OpenTranscript(msgspec.Struct, frozen=True, kw_only=True):
    """An open session, a context manager. Reading its lines may raise OSError and FileRefused."""

    #: With their ends; one that is too long is no record.
    lines: Iterator[bytes]
    size: int
    mtime_ns: int
    ctime_ns: int
    #: Closes what the lines are read from.
    close: Callable[[], object] = bool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TranscriptStore(Protocol):
    """A place with sessions of one program."""

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is; None when it is not a session of this."""

    def discover(self) -> Discovery:
        """Find all sessions, and all that look so but cannot be read."""

    def open(self, path: str) -> OpenTranscript:
        """Open the session of a ledger path. Raises FileRefused."""

    def folders(self) -> tuple[str, ...]:
        """Return the folders in which changes show; they may not exist."""

    def is_shared(self, absolute: str) -> bool:
        """Tell whether a file holds several sessions, so that a change of it asks for a scan."""
        return False


class TranscriptFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A program's way of keeping its sessions: all that a further program needs."""

    #: Its name in `memorySearch.transcripts`.
    name: str
    #: Matches lines that are parsed. Results of tools are most of a session, and are left out by this.
    relevant: bytes
    #: Reads the records of a session.
    said: SaidIn
    #: Finds the sessions of an agent and its workspace.
    find: Callable[[AgentSettings], tuple[TranscriptStore, ...]]


class SessionFiles(TranscriptStore):
    """Sessions as files, in folders below a trusted one, in which no link is followed."""

    def __init__(
        self,
        root: str | Path,
        prefix: str,
        *patterns: str,
        title: str,
        is_own: Callable[[str], bool] = lambda name: True,
        belongs: Callable[[str, str], bool] = lambda folder, absolute: True,
    ) -> None:
        """`patterns`: globs of the folders, relative to the root (`sessions/*/*/*`).

        `is_own` tells of a name in the root whether there can be sessions of this agent below it, `belongs`
        of a folder and an absolute path in it whether that session is of this agent.
        """
        self.root = os.path.abspath(os.path.expanduser(root))
        self.prefix = prefix
        self._patterns, self._title = patterns, title
        self._is_own, self._belongs = is_own, belongs

    def _below(self, pattern: str) -> list[str]:
        """Return the folders that match, relative to the root, those with a short name first."""
        found = (os.path.relpath(each, self.root) for each in Path(self.root).glob(pattern) if each.is_dir())
        # Gemini CLI copied what it had under a hash into a folder with a name, and goes on there.
        return sorted(filter(self._is_mine, found), key=lambda folder: (len(folder), folder))

    def _is_mine(self, folder: str) -> bool:
        return self._is_own(folder.partition(os.sep)[0])

    def _folders(self) -> list[str]:
        return [folder for pattern in self._patterns for folder in self._below(pattern)]

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is, or could be; None when it is no session."""
        above, name = os.path.split(path)
        if "\0" in path or not is_storable(path) or not is_transcript_name(name):
            return None
        first = None
        for folder in self._folders():
            absolute = os.path.join(self.root, folder, name)
            is_named = above in (self.prefix.rstrip("/"), os.path.dirname(absolute))
            if is_named and self._belongs(folder, absolute):
                located = FileLocation(path=self.prefix + name, absolute=absolute, anchor=self.root)
                if os.path.lexists(absolute):
                    return located
                first = first or located
        return first

    def discover(self) -> Discovery:
        """Find all sessions, and all that look so but cannot be read."""
        try:
            os.scandir(self.root).close()
        except OSError as error:
            issue = f"sessions of {self._title} not readable ({self.root}): {code(error)}"
            return Discovery(issues=(issue,))
        folders, found = self._folders(), Discovery()
        if not folders and "*" not in self._patterns[0]:
            inside = os.path.join(self.root, self._patterns[0])
            found = Discovery(issues=(f"sessions directory missing ({inside})",))
        for folder in folders:
            found = found.joined(self._discover_in(folder))
        return found

    def _discover_in(self, folder: str) -> Discovery:
        inside = os.path.join(self.root, folder)
        try:
            if link := first_link(self.root, inside):
                issue = f"sessions directory is a symbolic link and not followed ({link})"
                return Discovery(issues=(issue,))
            with os.scandir(inside) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            return Discovery(issues=(f"sessions directory not accessible ({inside}): {code(error)}",))
        return Discovery(files=tuple(filter(None, (self._discovered(folder, each) for each in entries))))

    def _discovered(self, folder: str, entry: os.DirEntry[str]) -> DiscoveredFile | None:
        if (
            not is_transcript_name(entry.name)
            or not is_storable(entry.name)
            or entry.is_dir(follow_symlinks=False)
        ):
            return None
        status = status_of(entry)
        if status is None or not self._belongs(folder, entry.path):
            return None
        return discovered(self.prefix + entry.name, entry.path, status)

    def open(self, path: str) -> OpenTranscript:
        """Open the session of a ledger path. Raises FileRefused."""
        if (located := self.locate(path)) is None:
            raise FileRefused(Problem(outcome=GONE, reason="gone from the disk"))
        return open_file(self.root, os.path.relpath(located.absolute, self.root))

    def folders(self) -> tuple[str, ...]:
        """Return the folders of sessions, and those in which more of them may appear."""
        found = [self.root]
        for parts in (pattern.split("/") for pattern in self._patterns):
            for depth in range(1, len(parts) + 1):
                found += [os.path.join(self.root, each) for each in self._below("/".join(parts[:depth]))]
        return tuple(dict.fromkeys(found))


def open_file(root: str, relative: str) -> OpenTranscript:
    """Open a session below the trusted folder `root`, following no link. Raises FileRefused."""
    # Read in large blocks: lines of a session are long.
    file = os.fdopen(open_regular(root, relative), "rb", buffering=1 << 20)
    status = os.fstat(file.fileno())
    return OpenTranscript(
        lines=_lines(file, status.st_size),
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        close=file.close,
    )


def _lines(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the lines of the first `size` bytes, the last one perhaps without its end."""
    while size > 0 and (line := file.readline(min(MAX_LINE_BYTES, size))):
        size -= len(line)
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            # Not a record: it is counted as broken, and nothing of it is kept.
            while size > 0 and (rest := file.readline(min(MAX_LINE_BYTES, size))):
                size -= len(rest)
                if rest.endswith(b"\n"):
                    break
            line = b"too long\n"
        yield line


def within(workspace: str | Path) -> Callable[[str], bool]:
    """Return what tells of a folder whether it is a workspace, or below it."""
    # A program records the path as the system knows it, links resolved or not.
    paths = (os.path.abspath(workspace), os.path.realpath(workspace))
    inside = tuple(f"{each.rstrip('/')}/" for each in paths)
    return lambda place: place.startswith("/") and f"{os.path.normpath(place)}/".startswith(inside)


def held_in(absolute: str, place_in: Callable[[Iterator[bytes]], object]) -> str:
    """Return the folder in which a session was held, which `place_in` finds in its lines; empty: unknown."""
    try:
        return _held_in(absolute, os.lstat(absolute).st_ino, place_in)
    except (OSError, ValueError, FileRefused):
        return ""


@lru_cache(maxsize=8192)
def _held_in(absolute: str, _inode: int, place_in: Callable[[Iterator[bytes]], object]) -> str:
    folder, name = os.path.split(absolute)
    with open_file(folder, name) as opened:
        if isinstance(place := place_in(opened.lines), str):
            return place
    # Not kept: it may say so later.
    raise ValueError("it does not say where it was held")


@contextmanager
def reading_database(program: str, database: Path) -> Iterator[Connection]:
    """Open the database of a program's sessions for a block. Raises FileRefused."""
    try:
        with reading_foreign(database) as connection:
            yield connection
    except (library().Error, OverflowError) as error:
        reason = f"sessions of {program} not readable ({database}): {error}"
        raise FileRefused(Problem(outcome=FAILED, reason=reason)) from error


def byte_length(column: str) -> str:
    """Return the expression of SQL for the bytes of a text, which are not read for it where that can be."""
    has_octets = library().sqlite_version_info >= (3, 43)
    return f"ifnull({f'octet_length({column})' if has_octets else f'length(CAST({column} AS BLOB))'}, 0)"


def as_ns(time_ms: object) -> int:
    """Return milliseconds as nanoseconds; what is no time of a file is 0."""
    return time_ms * 1_000_000 if isinstance(time_ms, int) and 0 <= time_ms < 1 << 42 else 0
