"""Find and open the transcripts of a folder; what formats have in common, see `formats`.

Ledger paths: `sessions/<name>` for OpenClaw's, `sessions/<format>/<name>` for others. No note can have one:
none has a name that ends like a transcript.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from memline.shared.config.schema import AgentSettings
from memline.shared.config.transcript_programs import TRANSCRIPT_PROGRAMS
from memline.shared.patterns import late
from memline.shared.sources.discover import (
    DiscoveredFile,
    Discovery,
    discovered,
    first_link,
    problem_of,
    status_of,
    unlisted_mark,
)
from memline.shared.sources.outcomes import GONE, Problem, code
from memline.shared.sources.paths import (
    TRANSCRIPT_PREFIX,
    FileLocation,
    is_storable,
    is_transcript_name,
    printable,
    unprintable,
)
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.transcripts.opening import Line, OpenTranscript, open_file, without
from memline.shared.tables import as_dict, as_list
from memline.shared.values import value


class TranscriptStore(Protocol):
    """A place with transcripts of one format."""

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is; None when it is not a transcript of this."""

    def problem_at(self, path: str) -> Problem | None:
        """Return what keeps the file of a ledger path from being read by its name; None when it is gone."""

    def discover(self) -> Discovery:
        """Find all transcripts, and all that look so but cannot be read."""

    def open(self, path: str) -> OpenTranscript:
        """Open the transcript of a ledger path. Raises FileRefused."""

    def folders(self) -> tuple[str, ...]:
        """Return the folders in which changes show; they may not exist."""

    def is_shared(self, absolute: str) -> bool:
        """Tell whether a file holds several transcripts, so that a change of it asks for a scan."""
        return False


@value
class Turn:
    """What a record says. Fields may be anything that JSON holds; what is not text is left out."""

    #: `user` or `assistant`; empty when it is not a message.
    role: str = ""
    text: str = ""
    #: What the session is called from here on.
    title: object = None
    #: Times of the record, the first valid one counts.
    stamps: tuple[object, ...] = ()
    #: Whether a timer wrote as the user.
    is_timer: bool = False


def own_turn(record: dict[str, Any]) -> Turn:
    """Read a line that a store of ours wrote: role, text, and where they are known title and time."""
    return Turn(
        role=record.get("role", ""),
        text=record.get("text", ""),
        title=record.get("title"),
        stamps=(record.get("time"),),
    )


@value
class TranscriptFormat:
    """A program's way of keeping its sessions: all that a further format needs."""

    #: Its name in `memorySearch.transcripts`.
    name: str
    #: Matches lines that are parsed. Results of tools are most of a transcript, and are left out by this.
    relevant: bytes
    #: Reads the record on a line. Never raises.
    read: Callable[[dict[str, Any]], Turn]
    #: Finds the transcripts of an agent and its workspace.
    find: Callable[[AgentSettings], tuple[TranscriptStore, ...]]


class TranscriptFolders(TranscriptStore):
    """The sessions of one format below a folder, in folders inside it that may come and go."""

    def __init__(
        self,
        root: str,
        name: str,
        *,
        places: Callable[[str], Sequence[TranscriptFolder]],
        between: Callable[[str], Sequence[str]] = lambda root: (root,),
        taken_back: Callable[[Iterable[Line]], Iterable[int]] | None = None,
    ) -> None:
        """`places` lists the folders with sessions, `between` those in which more of them may appear.

        `places` may raise OSError, and `taken_back` finds the lines that do not count any more.
        """
        self.root = os.path.abspath(root)
        self._name = name
        self._prefix = f"{TRANSCRIPT_PREFIX}{name}/"
        self._places = places
        self._between = between
        self._taken_back = taken_back

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is; None when it is not a session of here."""
        if not path.startswith((self._prefix, self.root + os.sep)):
            return None
        return self._found(path)[1]

    def problem_at(self, path: str) -> Problem | None:
        """Return what keeps the file of a ledger path from being read by its name; None when it is gone."""
        if not path.startswith(self._prefix):
            return None
        return next(filter(None, (place.problem_at(path) for place in self._known())), None)

    def discover(self) -> Discovery:
        """Find all sessions, and all that look so but cannot be read."""
        try:
            places = self._places(self.root)
        except OSError as error:
            title = TRANSCRIPT_PROGRAMS[self._name].title
            issue = f"sessions of {title} not readable ({self.root}): {code(error)}"
            return Discovery(issues=(issue,), unlisted=(unlisted_mark(self._prefix),))
        found = Discovery()
        for place in places:
            found = found.joined(place.discover())
        return found

    def open(self, path: str) -> OpenTranscript:
        """Open the session of a ledger path. Raises FileRefused."""
        place, _ = self._found(path)
        if place is None:
            raise FileRefused(Problem(outcome=GONE, reason="gone from the disk"))
        opened = place.open(path)
        return without(opened, self._taken_back) if self._taken_back else opened

    def folders(self) -> tuple[str, ...]:
        """Return the folders of sessions, and those in which more of them may appear."""
        try:
            between = self._between(self.root)
        except OSError:
            between = (self.root,)
        return (*between, *(place.folder for place in self._known()))

    def _found(self, path: str) -> tuple[TranscriptFolder | None, FileLocation | None]:
        """Return the folder that has the file of a path, else the first one in which it could be."""
        first: tuple[TranscriptFolder | None, FileLocation | None] = None, None
        for place in self._known():
            if located := place.locate(path):
                if os.path.lexists(located.absolute):
                    return place, located
                first = first if first[0] else (place, located)
        return first

    def _known(self) -> Sequence[TranscriptFolder]:
        try:
            return self._places(self.root)
        except OSError:
            return ()


def is_held_in(workspace: str, place_of: Callable[[str, int], str]) -> Callable[[str], bool]:
    """Return what tells of a file whether its session was held in a workspace, or in a folder below it.

    `place_of` returns the folder of the session in a file, known by its inode, too; raises ValueError.
    """
    is_within = within(workspace)

    def belongs(absolute: str) -> bool:
        try:
            return is_within(place_of(absolute, os.lstat(absolute).st_ino))
        except (OSError, ValueError, FileRefused):
            # It does not say yet.
            return False

    return belongs


def within(workspace: str) -> Callable[[str], bool]:
    """Return what tells of a folder whether it is a workspace, or below it."""
    # A program records the path as the system knows it, links resolved or not.
    inside = tuple(f"{each.rstrip('/')}/" for each in (workspace, os.path.realpath(workspace)))
    return lambda place: f"{place}/".startswith(inside)


def place_in(record: dict[str, Any]) -> str:
    """Return the folder in which a session was held, as a record says it. Raises ValueError."""
    place = record.get("cwd")
    if not isinstance(place, str) or not place.startswith("/"):
        raise ValueError("it does not say where it was held")
    return os.path.normpath(place)


def text_of(content: object, kind: str = "text") -> str:
    """Return the text of a message: a text, or the blocks of a kind among others."""
    if isinstance(content, str):
        return content
    blocks = [each for each in map(as_dict, as_list(content)) if each.get("type") == kind]
    return "\n".join(each["text"] for each in blocks if isinstance(each.get("text"), str))


class MarkedParts:
    """Takes out of a message what a program wrote between `<name>` and `</name>`.

    Marks in a code span are words, and so is one that is not closed.
    A message that begins with an open mark was interrupted: nothing of it is left.
    """

    def __init__(self, names: str) -> None:
        """`names`: a regular expression for the names of the marks."""
        self._begin = late(rf"(?<!`)<({names})>", re.IGNORECASE)
        self._end = late(rf"(?<!`)</({names})>", re.IGNORECASE)

    def taken_out(self, text: str) -> str:
        """Return the message without these parts."""
        # Where each is closed last: looking on for an end that is not there would be quadratic.
        last = {end[1].lower(): end.start() for end in self._end.finditer(text)}
        kept, start, is_first = list[str](), 0, True
        for begin in self._begin.finditer(text):
            if begin.start() < start:
                continue
            name = begin[1].lower()
            is_first = is_first and not text[start : begin.start()].strip()
            if last.get(name, -1) >= begin.end():
                kept.append(text[start : begin.start()])
                ends = self._end.finditer(text, begin.end())
                start = next(end.end() for end in ends if end[1].lower() == name)
            elif is_first:
                return ""
        return "".join(kept) + text[start:]


class TranscriptFolder(TranscriptStore):
    """Locates and lists the transcripts of one folder; folders inside it are not entered."""

    def __init__(
        self,
        anchor: str,
        folder: str,
        *,
        prefix: str = TRANSCRIPT_PREFIX,
        belongs: Callable[[str], bool] | None = None,
    ) -> None:
        """`belongs` tells of an absolute path whether that transcript is of this agent; None: all are."""
        #: The trusted folder: no link is followed below it.
        self.anchor = os.path.abspath(os.path.expanduser(anchor))
        #: The folder with the transcripts, below it.
        self.folder = os.path.join(self.anchor, folder)
        self.prefix = prefix
        self._belongs = belongs

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is; None when it is not a transcript."""
        if "\0" in path or not is_storable(path):
            return None
        folder, name = os.path.split(path)
        if folder not in (self.prefix.rstrip("/"), self.folder) or not is_transcript_name(name):
            return None
        absolute = self._stored(os.path.join(self.folder, name))
        if self._belongs and not self._belongs(absolute):
            return None
        return FileLocation(path=self.prefix + name, absolute=absolute, anchor=self.anchor)

    def problem_at(self, path: str) -> Problem | None:
        """Return what keeps the file of a ledger path from being read by its name; None when it is gone."""
        for name in (path.removeprefix(self.prefix), unprintable(path.removeprefix(self.prefix))):
            absolute = self._stored(os.path.join(self.folder, name))
            try:
                status = os.lstat(absolute)
            except (OSError, ValueError):
                continue
            if stat.S_ISDIR(status.st_mode) or first_link(self.anchor, self.folder) is not None:
                return None
            if self._belongs and not self._belongs(absolute):
                return None
            return problem_of(absolute, status)
        return None

    def discover(self) -> Discovery:
        """Find all transcripts, and all that look so but cannot be read."""
        issue, is_unlisted = "", True
        try:
            if (link := first_link(self.anchor, self.folder)) is None:
                with os.scandir(self.folder) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
                return Discovery(files=tuple(filter(None, map(self._discovered, entries))))
            issue, is_unlisted = f"is a symbolic link and not followed ({link})", False
        except (FileNotFoundError, NotADirectoryError):
            # With the anchor itself away nothing is known; below it, what is missing is gone.
            issue, is_unlisted = f"missing ({self.folder})", not os.path.isdir(self.anchor)
        except OSError as error:
            issue = f"not accessible ({self.folder}): {code(error)}"
        return Discovery(
            issues=(f"sessions directory {issue}",),
            unlisted=(unlisted_mark(self.prefix),) if is_unlisted else (),
        )

    def open(self, path: str) -> OpenTranscript:
        """Open the transcript of a ledger path. Raises FileRefused."""
        absolute = self._stored(os.path.join(self.folder, path.removeprefix(self.prefix)))
        return self._open(self.anchor, os.path.relpath(absolute, self.anchor))

    def folders(self) -> tuple[str, ...]:
        """Return the folder itself."""
        return (self.folder,)

    def _stored(self, absolute: str) -> str:
        """Return where the transcript of this name is: its program may keep it under another one."""
        return absolute

    def _open(self, anchor: str, relative: str) -> OpenTranscript:
        """Open the file of a transcript. Raises FileRefused."""
        return open_file(anchor, relative)

    def _discovered(self, entry: os.DirEntry[str]) -> DiscoveredFile | None:
        status = status_of(entry) if is_transcript_name(entry.name) else None
        if status is None or (isinstance(status, os.stat_result) and stat.S_ISDIR(status.st_mode)):
            return None
        if self._belongs and not self._belongs(entry.path):
            return None
        return discovered(printable(self.prefix + entry.name), entry.path, status)
