"""Find and open the sessions of a program: files below a folder, or rows of a database.

Ledger paths are `sessions/<name>` for OpenClaw's, `sessions/<program>/<name>` for others. No note can have
one: none has a name that ends like a transcript.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import msgspec

from memline.shared.config.schema import AgentSettings
from memline.shared.sessions.said import MAX_LINE_BYTES, SaidIn
from memline.shared.sources.discover import (
    DiscoveredFile,
    Discovery,
    discovered,
    first_link,
    problem_of,
    status_of,
    unlisted_mark,
)
from memline.shared.sources.outcomes import FAILED, GONE, Problem, code
from memline.shared.sources.paths import FileLocation, is_storable, is_transcript_name, printable, unprintable
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.sqlite import library


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

    def problem_at(self, path: str) -> Problem | None:
        """Return what keeps the file of a ledger path from being read by its name; None when it is gone."""

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
    """Sessions as files, in one or several folders below a trusted one, in which no link is followed."""

    def __init__(
        self,
        root: str | Path,
        prefix: str,
        *,
        folders: Callable[[str], Sequence[str]],
        title: str,
        between: Callable[[str], Sequence[str]] = lambda root: (root,),
        belongs: Callable[[str, str], bool] = lambda folder, absolute: True,
    ) -> None:
        """`folders` lists the folders of sessions, relative to the root; it may raise OSError.

        `between` lists the folders in which more of them may appear. `belongs` tells of a folder and an
        absolute path in it whether that session is of this agent.
        """
        self.root = os.path.abspath(os.path.expanduser(root))
        self.prefix = prefix
        self._list, self._between, self._belongs, self._title = folders, between, belongs, title

    def _folders(self) -> Sequence[str]:
        try:
            return self._list(self.root)
        except OSError:
            return ()

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is, or could be; None when it is no session."""
        above, name = os.path.split(path)
        if "\0" in path or not is_storable(path) or not is_transcript_name(name):
            return None
        first = None
        for folder in self._folders():
            inside = os.path.join(self.root, folder)
            absolute = os.path.join(inside, name)
            if above not in (self.prefix.rstrip("/"), inside) or not self._belongs(folder, absolute):
                continue
            located = FileLocation(path=self.prefix + name, absolute=absolute, anchor=self.root)
            if os.path.lexists(absolute):
                return located
            first = first or located
        return first

    def problem_at(self, path: str) -> Problem | None:
        """Return what keeps the file of a ledger path from being read by its name; None when it is gone."""
        name = path.removeprefix(self.prefix)
        if name == path or "/" in name:
            return None
        for folder in self._folders():
            inside = os.path.join(self.root, folder)
            for spelling in (name, unprintable(name)):
                absolute = os.path.join(inside, spelling)
                try:
                    status = os.lstat(absolute)
                    if stat.S_ISDIR(status.st_mode) or first_link(self.root, inside) is not None:
                        return None
                except (OSError, ValueError):
                    continue
                return problem_of(absolute, status) if self._belongs(folder, absolute) else None
        return None

    def discover(self) -> Discovery:
        """Find all sessions, and all that look so but cannot be read."""
        try:
            folders = self._list(self.root)
        except OSError as error:
            issue = f"sessions of {self._title} not readable ({self.root}): {code(error)}"
            return Discovery(issues=(issue,), unlisted=(unlisted_mark(self.prefix),))
        found = Discovery()
        for folder in folders:
            found = found.joined(self._discover_in(folder))
        return found

    def _discover_in(self, folder: str) -> Discovery:
        inside = os.path.join(self.root, folder)
        issue, is_unlisted = "", True
        try:
            if (link := first_link(self.root, inside)) is None:
                with os.scandir(inside) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
                return Discovery(
                    files=tuple(filter(None, (self._discovered(folder, each) for each in entries)))
                )
            issue, is_unlisted = f"is a symbolic link and not followed ({link})", False
        except (FileNotFoundError, NotADirectoryError):
            # With the root itself away nothing is known; below it, what is missing is gone.
            issue, is_unlisted = f"missing ({inside})", not os.path.isdir(self.root)
        except OSError as error:
            issue = f"not accessible ({inside}): {code(error)}"
        return Discovery(
            issues=(f"sessions directory {issue}",),
            unlisted=(unlisted_mark(self.prefix),) if is_unlisted else (),
        )

    def _discovered(self, folder: str, entry: os.DirEntry[str]) -> DiscoveredFile | None:
        status = status_of(entry) if is_transcript_name(entry.name) else None
        if status is None or (isinstance(status, os.stat_result) and stat.S_ISDIR(status.st_mode)):
            return None
        if not self._belongs(folder, entry.path):
            return None
        return discovered(printable(self.prefix + entry.name), entry.path, status)

    def open(self, path: str) -> OpenTranscript:
        """Open the session of a ledger path. Raises FileRefused."""
        if (located := self.locate(path)) is None:
            raise FileRefused(Problem(outcome=GONE, reason="gone from the disk"))
        return open_file(self.root, os.path.relpath(located.absolute, self.root))

    def folders(self) -> tuple[str, ...]:
        """Return the folders of sessions, and those in which more of them may appear."""
        try:
            between = self._between(self.root)
        except OSError:
            between = (self.root,)
        return (*between, *(os.path.join(self.root, folder) for folder in self._folders()))


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


@contextmanager
def database_faults(program: str, database: Path) -> Iterator[None]:
    """Raise FileRefused for what SQLite says against the database of a program's sessions."""
    try:
        yield
    except (library().Error, OverflowError) as error:
        reason = f"sessions of {program} not readable ({database}): {error}"
        raise FileRefused(Problem(outcome=FAILED, reason=reason)) from error


def as_ns(time_ms: object) -> int:
    """Return milliseconds as nanoseconds; what is no time of a file is 0."""
    return time_ms * 1_000_000 if isinstance(time_ms, int) and 0 <= time_ms < 1 << 42 else 0
