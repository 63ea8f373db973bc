"""The session transcripts of an agent: the files of its own sessions folder, and where each of them is.

The folder is `<state dir>/agents/<agent>/sessions`; folders inside it are not entered.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from shared.sources.discover import TRANSCRIPTS, Discovery, Found, problem_of
from shared.sources.outcomes import Problem, code, unreadable
from shared.sources.refusal import unprintable
from shared.sources.scope import Located, is_storable, printable
from shared.sources.transcript_names import PREFIX, SESSIONS, is_transcript_name

if TYPE_CHECKING:
    from shared.config.schema import AgentSettings


def transcripts_of(settings: AgentSettings) -> TranscriptScope | None:
    """The transcripts an agent may see: its own, once they are allowed and asked for."""
    memory = settings.memory
    if SESSIONS not in memory.sources or not memory.experimental.session_memory:
        return None
    return TranscriptScope(str(settings.state_dir), os.path.join("agents", settings.agent, "sessions"))


class TranscriptScope:
    """The transcripts of one agent."""

    def __init__(self, anchor: str, folder: str) -> None:
        #: The trusted folder: no link is followed below it.
        self.anchor = os.path.abspath(os.path.expanduser(anchor))
        #: The folder with the transcripts, below it.
        self.folder = os.path.join(self.anchor, folder)

    def locate(self, path: str) -> Located | None:
        """Where the file of a ledger path, or of an absolute path, is; None when it is no transcript."""
        if "\0" in path or not is_storable(path):
            return None
        folder, name = os.path.split(path)
        if folder not in (PREFIX.rstrip("/"), self.folder) or not is_transcript_name(name):
            return None
        return Located(path=PREFIX + name, absolute=os.path.join(self.folder, name), anchor=self.anchor)

    def concerns_folder(self, absolute: str) -> bool:
        """Whether a folder that came, went or moved can change what transcripts there are."""
        return (self.folder + os.sep).startswith(absolute.rstrip(os.sep) + os.sep)

    def problem_at(self, path: str) -> Problem | None:
        """What keeps the file of a ledger path from being read by its name; None when it is gone."""
        for name in (path.removeprefix(PREFIX), unprintable(path.removeprefix(PREFIX))):
            try:
                status = os.lstat(os.path.join(self.folder, name))
            except (OSError, ValueError):
                continue
            if stat.S_ISDIR(status.st_mode) or self._first_link() is not None:
                return None
            return problem_of(os.path.join(self.folder, name), status)
        return None

    def discover(self) -> Discovery:
        """All transcripts, and all that look so but cannot be read."""
        try:
            if (link := self._first_link()) is not None:
                return self._nothing(f"sessions directory is a symbolic link and not followed ({link})")
            with os.scandir(self.folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            # With the state directory itself away nothing is known; below it, what is missing is gone.
            is_away = not os.path.isdir(self.anchor)
            return self._nothing(f"sessions directory missing ({self.folder})", is_unlisted=is_away)
        except OSError as error:
            return self._nothing(
                f"sessions directory not accessible ({self.folder}): {code(error)}", is_unlisted=True
            )
        found = [self._found(entry) for entry in entries if is_transcript_name(entry.name)]
        return Discovery(found=tuple(one for one in found if one is not None), issues=())

    def _found(self, entry: os.DirEntry[str]) -> Found | None:
        path = printable(PREFIX + entry.name)
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Found(path=path, absolute=entry.path, size=0, mtime_ns=0, problem=unreadable(error))
        if stat.S_ISDIR(status.st_mode):
            return None
        return Found(
            path=path,
            absolute=entry.path,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            problem=problem_of(entry.path, status),
        )

    def _first_link(self) -> str | None:
        """The first link on the way from the trusted folder to the transcripts."""
        current = self.anchor
        for part in os.path.relpath(self.folder, self.anchor).split(os.sep):
            current = os.path.join(current, part)
            if stat.S_ISLNK(os.lstat(current).st_mode):
                return current
        return None

    def _nothing(self, issue: str, *, is_unlisted: bool = False) -> Discovery:
        return Discovery(found=(), issues=(issue,), unlisted=(TRANSCRIPTS,) if is_unlisted else ())
