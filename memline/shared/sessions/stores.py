"""Find and open the sessions of a program: files below a folder, or rows of a database.

Ledger paths are `sessions/<name>` for OpenClaw's, `sessions/<program>/<name>` for others. No note can have
one: none has a name that ends like a transcript. What is gone from the disk stays in the index until it is
forgotten, so nothing here tells a session that was deleted from one that cannot be listed.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from sqlite3 import Connection
from typing import BinaryIO, ClassVar, Protocol

from memline.shared.config.environment import PROGRAMS
from memline.shared.config.schema import AgentSettings
from memline.shared.sessions.said import MAX_LINE_BYTES, Record, Said
from memline.shared.sources.discover import DiscoveredFile, Discovery, discovered, first_link
from memline.shared.sources.outcomes import FAILED, GONE, Problem, code
from memline.shared.sources.paths import TRANSCRIPT_PREFIX, is_storable, is_transcript_name
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.sqlite import library, reading_foreign

#: An open session: its file, and its lines with their ends; one that is too long is no record. Reading them
#: may raise OSError, and what ends the block FileRefused.
Opened = tuple[DiscoveredFile, Iterable[bytes]]


class SessionStore(Protocol):
    """The sessions of one program that an agent may see: all that a further program needs."""

    #: Its name in `memorySearch.transcripts`.
    name: ClassVar[str]
    #: Matches lines that are parsed. Results of tools are most of a session, and are left out by this.
    relevant: ClassVar[bytes]
    #: The field in which a record that was written twice is the same.
    identity: ClassVar[str] = ""

    def __init__(self, settings: AgentSettings) -> None: ...

    @staticmethod
    def said(records: Iterable[Record]) -> Iterator[Said]:
        """Yield what was said. Never raises for what a record holds."""

    def discover(self) -> Discovery:
        """Find all sessions, and all that look so but cannot be read."""

    def open(self, path: str) -> AbstractContextManager[Opened]:
        """Open the session of a ledger path for a block. Raises FileRefused."""

    def folders(self) -> list[str]:
        """Return the folders in which changes show; they may not exist."""


class SessionFiles(SessionStore):
    """Sessions as files, in folders below a trusted one, in which no link is followed."""

    root: str
    #: Globs of folders, relative to the root.
    patterns: tuple[str, ...]

    def is_own(self, name: str) -> bool:
        """Tell of a name in the root whether there can be sessions of this agent below it."""
        return True

    def belongs(self, absolute: str) -> bool:
        """Tell of the path of a session whether it is of this agent."""
        return True

    def folders(self) -> list[str]:
        above = [each for pattern in self.patterns for each in accumulate(pattern.split("/"), os.path.join)]
        return [self.root, *self._matching(above)]

    def discover(self) -> Discovery:
        files, issues = list[DiscoveredFile](), list[str]()
        above = os.path.join(self.root, self.patterns[0].partition("*")[0]).rstrip(os.sep)
        for folder in self._matching(self.patterns) or [above]:
            try:
                is_link = first_link(self.root, folder) is not None
                reason = "a symbolic link, which is not followed" if is_link else ""
                files += () if is_link else self._files_in(folder)
            except OSError as error:
                reason = code(error)
            if reason:
                issues.append(f"sessions of {PROGRAMS[self.name]} not readable ({folder}): {reason}")
        return Discovery(files=tuple(files), issues=tuple(issues))

    def open(self, path: str) -> AbstractContextManager[Opened]:
        name = os.path.basename(path)
        for folder in self._matching(self.patterns):
            absolute = os.path.join(folder, name)
            if os.path.lexists(absolute) and self.belongs(absolute):
                return open_file(self.root, os.path.relpath(absolute, self.root))
        raise gone()

    def _matching(self, patterns: Iterable[str]) -> list[str]:
        """Return the folders that match."""
        return sorted(
            str(folder)
            for pattern in patterns
            for folder in Path(self.root).glob(pattern)
            if folder.is_dir() and self.is_own(folder.relative_to(self.root).parts[0])
        )

    def _files_in(self, folder: str) -> Iterator[DiscoveredFile]:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=attrgetter("name"))
        for entry in entries:
            if not is_transcript_name(entry.name) or not is_storable(entry.name):
                continue
            is_file = not entry.is_dir(follow_symlinks=False) and self.belongs(entry.path)
            if is_file and (file := discovered(prefix_of(self.name) + entry.name, entry.path)):
                yield file


def gone() -> FileRefused:
    """Return the error for a session that is not there."""
    return FileRefused(Problem(outcome=GONE, reason="gone from the disk"))


@contextmanager
def open_file(root: str, relative: str) -> Iterator[Opened]:
    """Open a session below the trusted folder `root` for a block, following no link. Raises FileRefused."""
    # Read in large blocks: lines of a session are long.
    with os.fdopen(open_regular(root, relative), "rb", buffering=1 << 20) as file:
        status, absolute = os.fstat(file.fileno()), os.path.join(root, relative)
        times = status.st_mtime_ns, status.st_ctime_ns
        yield DiscoveredFile(relative, absolute, status.st_size, *times), _lines(file, status.st_size)


def _lines(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the lines of the first `size` bytes, the last one perhaps without its end."""
    is_rest = False
    while size > 0 and (line := file.readline(min(MAX_LINE_BYTES, size))):
        size -= len(line)
        is_cut = len(line) == MAX_LINE_BYTES and not line.endswith(b"\n")
        if not is_rest:
            # Nothing of a line that is too long is kept, and it is counted as broken.
            yield b"too long\n" if is_cut else line
        is_rest = is_cut


def within(workspace: str | Path) -> Callable[[str], bool]:
    """Return a test that tells of a folder whether it is a workspace, or below it."""
    # A program records the path as the system knows it, links resolved or not.
    paths = (os.path.abspath(workspace), os.path.realpath(workspace))
    inside = tuple(f"{each.rstrip('/')}/" for each in paths)
    return lambda place: place.startswith("/") and f"{os.path.normpath(place)}/".startswith(inside)


def held_in(absolute: str, place_in: Callable[[Iterable[bytes]], str]) -> str:
    """Return the folder in which a session was held, which `place_in` finds in its lines; empty: unknown."""
    try:
        return _held_in(absolute, os.lstat(absolute).st_mtime_ns, place_in)
    except (OSError, FileRefused):
        return ""


@lru_cache(maxsize=8192)
def _held_in(absolute: str, _changed_ns: int, place_in: Callable[[Iterable[bytes]], str]) -> str:
    with open_file(*os.path.split(absolute)) as (_, lines):
        return place_in(lines)


@contextmanager
def reading_database(program: str, database: Path) -> Iterator[Connection]:
    """Open the database of a program's sessions for a block. Raises FileRefused."""
    try:
        with reading_foreign(database) as connection:
            yield connection
    except (library().Error, OverflowError) as error:
        reason = f"sessions of {PROGRAMS[program]} not readable ({database}): {error}"
        raise FileRefused(Problem(outcome=FAILED, reason=reason)) from error


def prefix_of(program: str) -> str:
    """Return how the ledger paths of a program's sessions begin."""
    return TRANSCRIPT_PREFIX if program == "openclaw" else f"{TRANSCRIPT_PREFIX}{program}/"


def path_of(program: str, session: object) -> str:
    """Return the ledger path of a session of a database; empty for an id that cannot be a file name."""
    name = f"{session}.jsonl"
    is_name = is_transcript_name(name) and is_storable(name) and len(name) <= 200
    return prefix_of(program) + name if is_name and "/" not in name and "\0" not in name else ""


def byte_length(column: str) -> str:
    """Return the expression of SQL for the bytes of a text, which are not read for it where that can be."""
    has_octets = library().sqlite_version_info >= (3, 43)
    return f"ifnull({f'octet_length({column})' if has_octets else f'length(CAST({column} AS BLOB))'}, 0)"


def as_ns(time_ms: object) -> int:
    """Return milliseconds as nanoseconds; what is no time of a file is 0."""
    return time_ms * 1_000_000 if isinstance(time_ms, int) and 0 <= time_ms < 1 << 42 else 0
