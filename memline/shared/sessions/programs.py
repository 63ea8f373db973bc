"""Find the programs whose sessions can be read, and what an agent may see of them.

A further program is a module beside this one that ends in its `FORMAT`, and a row of
`shared.config.environment.PROGRAMS`.
"""

import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, closing

from msgspec.structs import replace

from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault
from memline.shared.sessions import claude_code, codex, gemini_cli, openclaw, opencode
from memline.shared.sessions.stores import OpenTranscript, TranscriptFormat, TranscriptStore, gone
from memline.shared.sources.discover import DiscoveredFile, Discovery
from memline.shared.sources.paths import (
    SESSIONS,
    TRANSCRIPT_PREFIX,
    is_storable,
    is_transcript,
    is_transcript_name,
)
from memline.shared.sqlite import library

#: The programs by their names in `memorySearch.transcripts`.
FORMATS: dict[str, TranscriptFormat] = {
    each.name: each
    for each in (openclaw.FORMAT, claude_code.FORMAT, codex.FORMAT, gemini_cli.FORMAT, opencode.FORMAT)
}


class Transcripts:
    """Lists and opens the transcripts of one agent."""

    def __init__(self, stores: Mapping[str, TranscriptStore], *, barred: Collection[str] = ()) -> None:
        """`stores`: by their program. `barred`: the ledger paths of sessions that were forgotten."""
        self._stores = stores
        self._barred = barred

    def covers(self, path: str) -> bool:
        """Tell whether a ledger path can be that of a transcript of this agent; it may not exist."""
        is_path = is_transcript(path) and is_storable(path) and "\0" not in path
        return is_path and path not in self._barred and program_of(path) in self._stores

    def discover(self) -> Discovery:
        """Find all transcripts, and all that look so but cannot be read; each path once."""
        joined, files = Discovery(), dict[str, DiscoveredFile]()
        for store in self._stores.values():
            joined = joined.joined(store.discover())
        for file in joined.files:
            if file.path not in self._barred:
                files.setdefault(file.path, file)
        return replace(joined, files=tuple(files.values()))

    def open(self, path: str) -> AbstractContextManager[OpenTranscript]:
        """Open the transcript of a ledger path for a block. Raises FileRefused."""
        if not self.covers(path):
            raise gone()
        return self._stores[program_of(path)].open(path)

    def folders(self) -> tuple[str, ...]:
        """Return the folders in which changes show; they may not exist."""
        return tuple(dict.fromkeys(folder for store in self._stores.values() for folder in store.folders()))

    def concerns_file(self, absolute: str) -> bool:
        """Tell whether a change of a file in one of the folders can be a change of a transcript."""
        name = os.path.basename(absolute)
        return is_transcript_name(name) or name.removesuffix("-wal").endswith((".sqlite", ".db"))

    def concerns_folder(self, absolute: str) -> bool:
        """Tell whether a folder that was made, moved or removed can change what transcripts there are."""
        inside = absolute.rstrip(os.sep) + os.sep
        return any((folder + os.sep).startswith(inside) for folder in self.folders())


def transcripts_of(settings: AgentSettings) -> Transcripts | None:
    """Return the transcripts an agent may see: its own, once they are allowed and configured."""
    memory = settings.memory
    if SESSIONS not in memory.sources or not memory.experimental.session_memory:
        return None
    stores = {name: FORMATS[name].find(settings) for name in memory.transcripts}
    return Transcripts(stores, barred=_barred(settings))


def _barred(settings: AgentSettings) -> frozenset[str]:
    """Return the paths of the sessions of an agent that were forgotten. Raises IndexFault."""
    path = settings.account_path
    if not path.exists():
        return frozenset()
    how = "mode=ro" if os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"
    try:
        with closing(library().connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as connection:
            query = "SELECT path FROM forgotten_sessions WHERE agent = ?"
            return frozenset(barred for (barred,) in connection.execute(query, (settings.agent,)))
    except library().Error as error:
        if "no such table" in str(error):
            # It was made in this moment, or is of another release.
            return frozenset()
        raise IndexFault(f"{path} cannot be read: {error}", hint="memline doctor") from error


def program_of(path: str) -> str:
    """Return the program of the transcript of a ledger path."""
    name, _, rest = path.removeprefix(TRANSCRIPT_PREFIX).partition("/")
    return name if rest and name in FORMATS else openclaw.FORMAT.name


def format_of(path: str) -> TranscriptFormat:
    """Return the format of the transcript of a ledger path."""
    return FORMATS[program_of(path)]
