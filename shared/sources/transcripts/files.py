"""Find the session transcripts of an agent in its sessions folder.

The folder is `<state dir>/agents/<agent>/sessions`; folders inside it are not entered.
"""

from __future__ import annotations

import os
import stat

from memline.shared.config.schema import AgentSettings
from memline.shared.sources.discover import (
    TRANSCRIPTS,
    DiscoveredFile,
    Discovery,
    discovered,
    first_link,
    problem_of,
    status_of,
)
from memline.shared.sources.outcomes import Problem, code
from memline.shared.sources.paths import (
    SESSIONS,
    TRANSCRIPT_PREFIX,
    FileLocation,
    is_storable,
    is_transcript_name,
    printable,
    unprintable,
)


def transcript_folder_of(settings: AgentSettings) -> TranscriptFolder | None:
    """Return the transcripts an agent may see: its own, once they are allowed and configured."""
    memory = settings.memory
    if SESSIONS not in memory.sources or not memory.experimental.session_memory:
        return None
    return TranscriptFolder(str(settings.state_dir), os.path.join("agents", settings.agent, "sessions"))


class TranscriptFolder:
    """Locates and lists the transcripts of one agent."""

    def __init__(self, anchor: str, folder: str) -> None:
        #: The trusted folder: no link is followed below it.
        self.anchor = os.path.abspath(os.path.expanduser(anchor))
        #: The folder with the transcripts, below it.
        self.folder = os.path.join(self.anchor, folder)

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is; None when it is not a transcript."""
        if "\0" in path or not is_storable(path):
            return None
        folder, name = os.path.split(path)
        if folder not in (TRANSCRIPT_PREFIX.rstrip("/"), self.folder) or not is_transcript_name(name):
            return None
        return FileLocation(
            path=TRANSCRIPT_PREFIX + name, absolute=os.path.join(self.folder, name), anchor=self.anchor
        )

    def concerns_folder(self, absolute: str) -> bool:
        """Tell whether a folder that was made, moved or removed can change what transcripts there are."""
        return (self.folder + os.sep).startswith(absolute.rstrip(os.sep) + os.sep)

    def problem_at(self, path: str) -> Problem | None:
        """Return what keeps the file of a ledger path from being read by its name; None when it is gone."""
        for name in (path.removeprefix(TRANSCRIPT_PREFIX), unprintable(path.removeprefix(TRANSCRIPT_PREFIX))):
            try:
                status = os.lstat(os.path.join(self.folder, name))
            except (OSError, ValueError):
                continue
            if stat.S_ISDIR(status.st_mode) or first_link(self.anchor, self.folder) is not None:
                return None
            return problem_of(os.path.join(self.folder, name), status)
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
            # With the state directory itself away nothing is known; below it, what is missing is gone.
            issue, is_unlisted = f"missing ({self.folder})", not os.path.isdir(self.anchor)
        except OSError as error:
            issue = f"not accessible ({self.folder}): {code(error)}"
        return Discovery(
            issues=(f"sessions directory {issue}",), unlisted=(TRANSCRIPTS,) if is_unlisted else ()
        )

    def _discovered(self, entry: os.DirEntry[str]) -> DiscoveredFile | None:
        status = status_of(entry) if is_transcript_name(entry.name) else None
        if status is None or (isinstance(status, os.stat_result) and stat.S_ISDIR(status.st_mode)):
            return None
        return discovered(printable(TRANSCRIPT_PREFIX + entry.name), entry.path, status)
