"""Find the programs whose sessions can be read, and what an agent may see of them.

A further program is a module beside this one that ends in its `FORMAT`, and a row of
`shared.config.environment.PROGRAMS`.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import closing

from msgspec.structs import replace

from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault
from memline.shared.sessions import claude_code, codex, gemini_cli, openclaw, opencode
from memline.shared.sessions.stores import OpenTranscript, TranscriptFormat, TranscriptStore
from memline.shared.sources.discover import DiscoveredFile, Discovery
from memline.shared.sources.outcomes import GONE, Problem
from memline.shared.sources.paths import SESSIONS, TRANSCRIPT_PREFIX, FileLocation
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sqlite import library

#: The programs by their names in `memorySearch.transcripts`.
FORMATS: dict[str, TranscriptFormat] = {
    each.name: each
    for each in (openclaw.FORMAT, claude_code.FORMAT, codex.FORMAT, gemini_cli.FORMAT, opencode.FORMAT)
}


class Transcripts:
    """Locates, lists and opens the transcripts of one agent."""

    def __init__(self, stores: Sequence[TranscriptStore], *, barred: Collection[str] = ()) -> None:
        """`barred`: the ledger paths of those that were forgotten, which are not there for any reader."""
        self._stores = tuple(stores)
        self._barred = barred

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is; None when it is not a transcript."""
        located = next(filter(None, (store.locate(path) for store in self._stores)), None)
        return None if located is not None and located.path in self._barred else located

    def discover(self) -> Discovery:
        """Find all transcripts, and all that look so but cannot be read; each path once."""
        found, files = Discovery(), dict[str, DiscoveredFile]()
        for store in self._stores:
            found = found.joined(store.discover())
        for file in found.files:
            if file.path not in self._barred:
                files.setdefault(file.path, file)
        return replace(found, files=tuple(files.values()))

    def open(self, path: str) -> OpenTranscript:
        """Open the transcript of a ledger path. Raises FileRefused."""
        for store in self._stores if path not in self._barred else ():
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
        own = (store for store in self._stores if isinstance(store, openclaw.OpenClawTranscripts))
        return {session for store in own for session in store.sessions_of(key)}


def transcripts_of(settings: AgentSettings) -> Transcripts | None:
    """Return the transcripts an agent may see: its own, once they are allowed and configured."""
    memory = settings.memory
    if SESSIONS not in memory.sources or not memory.experimental.session_memory:
        return None
    stores = [store for name in memory.transcripts for store in FORMATS[name].find(settings)]
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


def format_of(path: str) -> TranscriptFormat:
    """Return the format of the transcript of a ledger path."""
    name, _, rest = path.removeprefix(TRANSCRIPT_PREFIX).partition("/")
    return FORMATS[name if rest and name in FORMATS else openclaw.FORMAT.name]
