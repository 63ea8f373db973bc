"""Plan a run: compare the disk with an index by names, sizes, times and chunking. No file is opened."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.index import batches, identities, ledger, meta, ownership, vectors
from memline.shared.index.driver import reading_if_any
from memline.shared.index.ledger import SetAside
from memline.shared.index.vectors import Backlog
from memline.shared.sources.discover import Discovery, discover, discovered
from memline.shared.sources.outcomes import RecordedFiles
from memline.shared.sources.paths import MEMORY, SESSIONS, MemoryPaths, printable
from memline.shared.sync import vanished
from memline.shared.sync.changes import Changes, compare
from memline.shared.sync.vanished import Kept
from memline.shared.values import field, replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.sources.transcripts.formats import Transcripts

#: Seconds between two plans, at least, of who looks at the files again and again, and the part of the time
#: that they may take: 0.1 s of CPU for 5,000 files.
FILES_EVERY_S, FILES_SHARE = 4.0, 1 / 400


@value
class IndexState:
    """Files and backlog of an index; the defaults are those of an agent without an index."""

    files: RecordedFiles = field(default_factory=RecordedFiles)
    backlog: Backlog = field(default_factory=Backlog)
    #: Workspace the index is of; empty when none was recorded.
    workspace: str = ""
    #: Batches that are not closed; their texts, if any are left, are in `backlog`.
    open_batches: int = 0
    #: Whether search still uses the vectors of the model before.
    is_changing_model: bool = False
    #: Files that are gone and kept, or may be removed.
    kept: Kept = field(default_factory=dict)
    #: Files that went and of which something is set aside.
    aside: SetAside = field(default_factory=dict)


@value
class Plan:
    """What a run would do, and so how stale the index is."""

    discovery: Discovery
    changes: Changes
    choice: Choice
    index: IndexState
    #: Workspace and present file of an index that was at this path and is of another workspace.
    given_back: tuple[str, str] | None = None
    #: What the index is to say of files that are gone: `index.kept` as this look found it.
    kept: Kept = field(default_factory=dict)

    @property
    def total_files(self) -> int:
        """Count the files on the disk that can be read."""
        return sum(1 for file in self.discovery.files if file.problem is None)

    def files(self, *, force: bool = False) -> list[tuple[str, int]]:
        """List (ledger path, size) of what a chunk worker should read: what changed, with `force` all."""
        return self.sized(self.changes.to_read(force=force))

    def sized(self, paths: Iterable[str]) -> list[tuple[str, int]]:
        """Pair the paths with the sizes of their files."""
        sizes = {file.path: file.size for file in self.discovery.files}
        return [(path, sizes.get(path, 0)) for path in paths]

    def outside_jobs(
        self, files: Iterable[tuple[str, int]], waiting: Mapping[str, int]
    ) -> list[tuple[str, int]]:
        """Leave out the files that a job is going to read (path -> when it was asked for, ns).

        One that was saved since then is not left out: a live edit never waits for a job that is paused.
        """
        times = {file.path: file.mtime_ns for file in self.discovery.files} if waiting else {}
        return [file for file in files if times.get(file[0], 0) > waiting.get(file[0], -1)]

    @property
    def behind(self) -> dict[str, int]:
        """Count the files and vectors that the index lacks."""
        return {"files": self.changes.count, "vectors": self.index.backlog.pending}

    @property
    def is_behind(self) -> bool:
        return any(self.behind.values()) or self.index.is_changing_model


def read_index_state(connection: Connection) -> IndexState:
    """Read what a plan needs of an index."""
    target = identities.target(connection)
    active = identities.active(connection)
    return IndexState(
        files=ledger.recorded_files(connection),
        backlog=vectors.backlog(connection, target.id) if target else Backlog(),
        open_batches=len(batches.open_batches(connection)),
        workspace=str(meta.get(connection, meta.WORKSPACE, "") or ""),
        is_changing_model=bool(active and target and active.id != target.id),
        kept=vanished.read(connection),
        aside=ledger.set_aside(connection),
    )


def transcripts_searched(settings: AgentSettings) -> Transcripts | None:
    """Return the transcripts of an agent; None when it does not search any."""
    if SESSIONS not in settings.memory.sources:
        return None
    # Here, because few agents search their transcripts: 3 ms of each search.
    from memline.shared.sources.transcripts.formats import transcripts_of

    return transcripts_of(settings)


def make_plan(
    settings: AgentSettings,
    choice: Choice,
    index: IndexState,
    *,
    decides: bool = False,
    accepts_removals: bool = False,
    now: float | None = None,
) -> Plan:
    """Compare the disk, the files of all sources an agent has, with an index.

    `decides`: what is gone and not kept is removed at once; `accepts_removals`: however much it is. Raises
    IndexOfAnother for an index of another workspace.
    """
    ownership.refuse(settings, index.workspace)
    memory = settings.memory
    discovery, paths = Discovery(files=(), issues=()), MemoryPaths.of(settings)
    if MEMORY in memory.sources:
        discovery = discover(paths)
    if transcripts := transcripts_searched(settings):
        discovery = discovery.joined(transcripts.discover())
    chunking = settings.memory.chunking
    sessions = settings.memory.sync.sessions
    changes = compare(
        discovery,
        index.files,
        chunking_digest(chunking.tokens, chunking.overlap),
        transcript_chunking=transcript_digest(chunking.tokens, chunking.overlap),
        growth=sessions.delta_bytes if sessions.delta_messages else 0,
    )
    kept: Kept = {}
    if changes.removed or index.kept or "." in discovery.unlisted:
        now, roots = time.time() if now is None else now, vanished.Roots(settings, paths)
        kept = vanished.hold(
            roots,
            discovery,
            changes.removed,
            index.files,
            index.kept,
            now=now,
            hashes=partial(_hashes, settings),
            aside=index.aside,
            decides=decides,
            accepts=accepts_removals,
        )
        held = {path for path in changes.removed if path in kept and roots.holds(kept[path], now)}
        left = tuple(path for path in changes.removed if path not in held)
        changes = replace(changes, removed=left, kept=tuple(sorted(held)))
    return Plan(discovery=discovery, changes=changes, choice=choice, index=index, kept=kept)


def are_stored(settings: AgentSettings, paths: Collection[str]) -> bool:
    """Tell whether the index has notes (absolute paths) just as they are; no other file is looked at.

    Raises IndexFaults but for IndexMissing.
    """
    notes, chunking = MemoryPaths.of(settings), settings.memory.chunking
    names = {printable(notes.ledger_path(absolute)): absolute for absolute in paths}
    found = []
    try:
        for path, absolute in names.items():
            with suppress(FileNotFoundError):
                found.append(discovered(path, absolute, os.lstat(absolute)))
    except OSError:
        return False
    with reading_if_any(settings.index_path) as reader:
        recorded = ledger.recorded_files(reader, [*names]) if reader else RecordedFiles()
    seen = Discovery(files=tuple(found), issues=())
    return not compare(seen, recorded, chunking_digest(chunking.tokens, chunking.overlap)).count


def _hashes(settings: AgentSettings) -> dict[str, str]:
    with reading_if_any(settings.index_path) as reader:
        return ledger.hashes(reader) if reader else {}


def plan_of(settings: AgentSettings) -> Plan:
    """Compare the disk with the index of an agent, if there is one. Raises IndexFaults."""
    with reading_if_any(settings.index_path) as reader:
        index = read_index_state(reader) if reader else IndexState()
    return make_plan(settings, choose(settings), index)


#: Raised whenever the same text gives other chunks, names or days: files read by an older version are read
#: again.
CHUNKING_VERSION = 3

#: The same for transcripts: what is taken out of them, what is redacted, how messages are cut.
TRANSCRIPT_VERSION = 6


def chunking_digest(max_tokens: int, overlap_tokens: int) -> str:
    """Return all that decides how a text is cut, in short; another digest means chunking again.

    Not hashed: every search asks for it, and loading OpenSSL for `hashlib` costs 2.5 ms.
    """
    return f"{CHUNKING_VERSION}:{max_tokens}:{overlap_tokens}"


def transcript_digest(max_tokens: int, overlap_tokens: int) -> str:
    """Return the same for a transcript."""
    return f"t{TRANSCRIPT_VERSION}:{max_tokens}:{overlap_tokens}"
