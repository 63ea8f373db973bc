"""Plan a run: compare the disk with an index by names, sizes, times and chunking. No file is opened."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from sqlite3 import Connection

import msgspec
from msgspec.structs import fields, replace

from memline.shared.config import environment
from memline.shared.config.agents import WORKSPACE_OPTION, is_same
from memline.shared.config.schema import AgentSettings, Chunking
from memline.shared.embedders.choice import Choice, choose
from memline.shared.errors import IndexFault
from memline.shared.index import ledger, meta
from memline.shared.index.driver import reading_if_any
from memline.shared.index.rows import LedgerEntry
from memline.shared.sources.discover import DiscoveredFile, Discovery, discover
from memline.shared.sources.outcomes import (
    EMPTY,
    INDEXED,
    NOT_TEXT,
    SYMLINK,
    TOO_LARGE,
    UNREADABLE,
)
from memline.shared.sources.paths import MEMORY, SESSIONS, TRANSCRIPT_PREFIX, MemoryPaths, is_transcript

#: Outcomes that come from the content: with the same size and time they would come again.
_BY_CONTENT = frozenset({EMPTY, NOT_TEXT, TOO_LARGE})

#: Files of a root that are not removed when no other is left.
FEW_FILES = 5


class EmptiedRoot(msgspec.Struct, frozen=True, kw_only=True):
    """The workspace or a folder of `extraPaths` that had `FEW_FILES` or more and has none."""

    root: str
    files: int


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Groups ledger paths by what happened to their files.

    Not those in the ledger below a folder that could not be listed, of a root that was emptied, and of
    sessions that their program deleted: nothing is done to them.
    """

    added: tuple[str, ...] = ()
    #: Also what cannot be indexed (links, FIFOs …) and is not known as such yet.
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    #: Transcripts that grew by less than is worth reading each time; they count as up to date.
    growing: tuple[str, ...] = ()
    #: Could not be read last time, and look the same (or are folders that can be listed now): tried again,
    #: and not behind.
    again: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Count the files that the index is behind."""
        return len(self.added) + len(self.changed) + len(self.removed)

    def to_read(self, *, force: bool = False, tails: bool = True) -> tuple[str, ...]:
        """Return the paths a chunk worker should read: those that changed in any way, with `force` all.

        Without `tails` transcripts that grew only a little are left out.
        """
        growing = self.growing if tails or force else ()
        changed = (*self.added, *self.changed, *growing, *self.removed, *self.again)
        return (*changed, *self.unchanged) if force else changed


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would do, and so how stale the index is."""

    discovery: Discovery
    changes: Changes
    choice: Choice
    #: Whether the index has no file yet.
    is_first: bool = False
    #: Roots of which no file is left, and whose rows stay.
    emptied: tuple[EmptiedRoot, ...] = ()
    #: Seconds of CPU it took.
    look_s: float = 0.0

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


def refuse_other_workspace(settings: AgentSettings, recorded: str) -> None:
    """Raise IndexFault when the command line names another workspace than that of the agent's index.

    `recorded` is that workspace. The index follows the workspace that is configured for the agent.
    """
    is_configured = settings.workspace_origin not in (WORKSPACE_OPTION, environment.WORKSPACE)
    if recorded and not is_configured and not is_same(recorded, settings.workspace):
        raise IndexFault(
            f"the index {settings.index_path} is of another workspace, {recorded};"
            f" nothing of it is used for {settings.workspace}",
            hint="give each workspace a store.path of its own",
        )


def make_plan(
    settings: AgentSettings,
    choice: Choice,
    index: Connection | None,
    *,
    accepts_removals: bool = False,
) -> Plan:
    """Compare the disk, the files of all sources an agent has, with an index; None where there is none.

    `accepts_removals`: the files of a root that was emptied are removed as well. Raises IndexFault for an
    index of another workspace.
    """
    if index is not None:
        refuse_other_workspace(settings, meta.get(index, meta.WORKSPACE, ""))
    recorded = {} if index is None else ledger.entries(index)
    memory = settings.memory
    discovery, paths = Discovery(files=(), issues=()), MemoryPaths.of(settings)
    if MEMORY in memory.sources:
        discovery = discover(paths)
    if SESSIONS in memory.sources:
        # Few agents search transcripts, whose readers take 8 ms of a search to import.
        from memline.shared.sessions.transcripts import transcripts_of

        if transcripts := transcripts_of(settings):
            discovery = discovery.joined(transcripts.discover())
    sessions = memory.sync.sessions
    changes = compare(
        discovery,
        recorded,
        chunking_digest(memory.chunking),
        transcript_chunking=chunking_digest(memory.chunking, SESSIONS),
        growth=sessions.delta_bytes if sessions.delta_messages else 0,
    )
    emptied: dict[str, list[str]] = {}
    if changes.removed and not accepts_removals:
        emptied = _emptied_roots(paths, discovery, changes.removed)
    kept = {path for path in changes.removed if _is_session_kept(settings, path, discovery)}.union(
        *emptied.values()
    )
    return Plan(
        discovery=discovery,
        changes=replace(changes, removed=tuple(path for path in changes.removed if path not in kept)),
        choice=choice,
        is_first=not recorded,
        emptied=tuple(EmptiedRoot(root=root, files=len(files)) for root, files in sorted(emptied.items())),
    )


def _emptied_roots(paths: MemoryPaths, discovery: Discovery, removed: Iterable[str]) -> dict[str, list[str]]:
    """Return the files that are gone of each root that had `FEW_FILES` or more and has none.

    A disk that is not mounted is an empty folder, and no wish to remove what was there.
    """
    inhabited = {_root_of(paths, file.path) for file in discovery.files}
    gone: defaultdict[str, list[str]] = defaultdict(list)
    for path in removed:
        gone[_root_of(paths, path)].append(path)
    return {
        root: files
        for root, files in gone.items()
        if root and root not in inhabited and len(files) >= FEW_FILES
    }


def _root_of(paths: MemoryPaths, path: str) -> str:
    """Return the root of a ledger path, the innermost; empty for what is below none."""
    if is_transcript(path):
        return ""
    absolute = os.path.join(paths.workspace, path)
    above = [extra.path for extra in paths.extras if (absolute + os.sep).startswith(extra.path + os.sep)]
    return max(above, key=len, default="" if os.path.isabs(path) else paths.workspace)


def _is_session_kept(settings: AgentSettings, path: str, discovery: Discovery) -> bool:
    """Tell whether a transcript that is gone stays until it is forgotten: its program deleted it."""
    if not is_transcript(path):
        return False
    name, _, rest = path.removeprefix(TRANSCRIPT_PREFIX).partition("/")
    memory, program = settings.memory, name if rest else "openclaw"
    is_read = SESSIONS in memory.sources and memory.experimental.session_memory
    return is_read and program in memory.transcripts and not discovery.is_archived(path)


def compare(
    discovery: Discovery,
    ledger: Mapping[str, LedgerEntry],
    chunking: str,
    *,
    transcript_chunking: str = "",
    growth: int = 0,
) -> Changes:
    """Compare a walk with the ledger. Pure; opens no file.

    A file is unchanged when size and times are those of the ledger and its chunks were made with the present
    settings (`chunking`; `transcript_chunking` for transcripts). What could not be read last time is tried
    again every time. A transcript is growing while it is larger by less than `growth` bytes.
    """
    groups: dict[str, list[str]] = {field.name: [] for field in fields(Changes)}
    links: list[str] = []
    for file in discovery.files:
        cut, most = (transcript_chunking, growth) if is_transcript(file.path) else (chunking, 0)
        groups[_change_of(file, ledger.get(file.path), cut, most)].append(file.path)
        if file.problem and file.problem.outcome == SYMLINK:
            links.append(file.path + "/")
    for path in sorted(ledger.keys() - {file.path for file in discovery.files}):
        if discovery.is_unlisted(path):
            continue
        group = "removed"
        if ledger[path].outcome == SYMLINK and path.startswith(tuple(links)):
            # Behind a link that the walk did not follow: read again, it would have the same outcome.
            group = "unchanged"
        groups[group].append(path)
    return Changes(**{name: tuple(paths) for name, paths in groups.items()})


def _change_of(file: DiscoveredFile, recorded: LedgerEntry | None, chunking: str, growth: int) -> str:
    if file.problem is not None:
        is_recorded = recorded is not None and recorded.outcome == file.problem.outcome
        return "unchanged" if is_recorded else "changed"
    if recorded is None:
        return "added"
    is_cut_so = recorded.chunking == chunking
    was = (recorded.size, recorded.mtime_ns, recorded.ctime_ns)
    if was == (file.size, file.mtime_ns, file.ctime_ns):
        if recorded.outcome in _BY_CONTENT or (recorded.outcome == INDEXED and is_cut_so):
            return "unchanged"
        return "again" if recorded.outcome == UNREADABLE else "changed"
    has_grown_little = 0 < file.size - recorded.size < growth
    is_growing = has_grown_little and is_cut_so and recorded.outcome in (INDEXED, EMPTY)
    return "growing" if is_growing else "changed"


def plan_of(settings: AgentSettings, choice: Choice | None = None) -> Plan:
    """Compare the disk with the index of an agent, if there is one. Raises IndexFaults."""
    choice, began = choice or choose(settings), time.thread_time()
    with reading_if_any(settings.index_path) as reader:
        plan = make_plan(settings, choice, reader)
    return replace(plan, look_s=time.thread_time() - began)


#: Raised whenever the same text gives other chunks, names or days: files read by an older version are read
#: again.
CHUNKING_VERSION = 7

#: The same for transcripts: what is taken out of them, what is redacted, how messages are cut.
TRANSCRIPT_VERSION = 7


def chunking_digest(chunking: Chunking, source: str = MEMORY) -> str:
    """Return all that decides how a text is cut, in short; another digest means chunking again."""
    version = CHUNKING_VERSION if source == MEMORY else f"t{TRANSCRIPT_VERSION}"
    return f"{version}:{chunking.tokens}:{chunking.overlap}"
