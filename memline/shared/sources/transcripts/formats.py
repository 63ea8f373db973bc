"""Find the formats of transcripts, and what an agent may see of them.

A further format is a module beside this one that ends in its `FORMAT`, and a row of
`shared.config.transcript_programs`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module

from memline.shared.config.schema import AgentSettings
from memline.shared.config.transcript_programs import TRANSCRIPT_PROGRAMS
from memline.shared.sources.discover import Discovery
from memline.shared.sources.outcomes import GONE, Problem
from memline.shared.sources.paths import SESSIONS, TRANSCRIPT_PREFIX, FileLocation
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.transcripts import openclaw_files
from memline.shared.sources.transcripts.opening import OpenTranscript
from memline.shared.sources.transcripts.stores import TranscriptFormat, TranscriptStore


@cache
def format_named(name: str) -> TranscriptFormat:
    """Return the format of a program: its module is imported when its sessions are read. Raises KeyError."""
    module = import_module(f"{__package__}.{TRANSCRIPT_PROGRAMS[name].module}")
    found: TranscriptFormat = module.FORMAT
    return found


def transcripts_of(settings: AgentSettings) -> Transcripts | None:
    """Return the transcripts an agent may see: its own, once they are allowed and configured."""
    memory = settings.memory
    if SESSIONS not in memory.sources or not memory.experimental.session_memory:
        return None
    return Transcripts([store for name in memory.transcripts for store in format_named(name).find(settings)])


def format_of(path: str) -> TranscriptFormat:
    """Return the format of the transcript of a ledger path."""
    name, _, rest = path.removeprefix(TRANSCRIPT_PREFIX).partition("/")
    return format_named(name) if rest and name in TRANSCRIPT_PROGRAMS else openclaw_files.FORMAT


class Transcripts:
    """Locates, lists and opens the transcripts of one agent."""

    def __init__(self, stores: Sequence[TranscriptStore]) -> None:
        self._stores = tuple(stores)

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is; None when it is not a transcript."""
        return next(filter(None, (store.locate(path) for store in self._stores)), None)

    def problem_at(self, path: str) -> Problem | None:
        """Return what keeps the file of a ledger path from being read by its name; None when it is gone."""
        return next(filter(None, (store.problem_at(path) for store in self._stores)), None)

    def discover(self) -> Discovery:
        """Find all transcripts, and all that look so but cannot be read; each path once."""
        found = Discovery()
        for store in self._stores:
            found = found.joined(store.discover())
        by_path = {file.path: file for file in reversed(found.files)}
        return Discovery(
            files=tuple(by_path[path] for path in dict.fromkeys(file.path for file in found.files)),
            issues=found.issues,
            unlisted=found.unlisted,
            left_out=found.left_out,
        )

    def open(self, path: str) -> OpenTranscript:
        """Open the transcript of a ledger path. Raises FileRefused."""
        for store in self._stores:
            if store.locate(path) is not None:
                return store.open(path)
        raise FileRefused(Problem(outcome=GONE, reason="gone from the disk"))

    def folders(self) -> tuple[str, ...]:
        """Return the folders in which changes show; they may not exist."""
        return tuple(dict.fromkeys(folder for store in self._stores for folder in store.folders()))

    def is_shared(self, absolute: str) -> bool:
        """Tell whether a file holds several transcripts, so that a change of it asks for a scan."""
        return any(store.is_shared(absolute) for store in self._stores)

    def concerns_folder(self, absolute: str) -> bool:
        """Tell whether a folder that was made, moved or removed can change what transcripts there are."""
        inside = absolute.rstrip(os.sep) + os.sep
        return any((folder + os.sep).startswith(inside) for folder in self.folders())

    def sessions_of(self, key: str) -> set[str]:
        """Return the ids of the sessions that have this key in the original's database."""
        own = (store for store in self._stores if isinstance(store, openclaw_files.OpenClawTranscripts))
        return {session for store in own for session in store.sessions_of(key)}
