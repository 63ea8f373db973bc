"""The difference between the disk and an index, found by names, sizes and times: no file is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from shared.config.schema import AgentSettings
from shared.embedders.choice import Choice
from shared.index import batches, identity, ledger, meta, vectors
from shared.index.changes import Changes, Seen, compare
from shared.index.vectors import Backlog
from shared.sources.chunking_digest import chunking_digest, transcript_digest
from shared.sources.discover import Discovery, discover
from shared.sources.transcript_names import MEMORY, SESSIONS
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection


@value
class Known:
    """What an index says; the defaults are those of an agent without an index."""

    files: Mapping[str, Seen] = field(default_factory=dict)
    backlog: Backlog = field(default_factory=Backlog)
    #: Workspace the index was last brought up to date with; empty for none.
    workspace: str = ""
    #: Batches that are not over; their texts, if any are left, are in `backlog`.
    open_batches: int = 0
    #: Whether search still uses the vectors of the model before.
    is_changing_model: bool = False


@value
class Plan:
    """What a run would do, and so how far the index is behind."""

    discovery: Discovery
    changes: Changes
    choice: Choice
    known: Known
    #: Workspace the index belonged to before, when it was another one.
    moved_from: str = ""

    @property
    def total_files(self) -> int:
        """Files on the disk that can be read."""
        return sum(1 for found in self.discovery.found if found.problem is None)

    def files(self, *, force: bool = False) -> list[tuple[str, int]]:
        """(ledger path, size) of what a chunk worker should look at: what changed, with `force` all."""
        return self.sized(self.changes.announced(force=force))

    def sized(self, paths: Iterable[str]) -> list[tuple[str, int]]:
        """The paths with the sizes of their files."""
        sizes = {found.path: found.size for found in self.discovery.found}
        return [(path, sizes.get(path, 0)) for path in paths]

    @property
    def behind(self) -> dict[str, int]:
        """Files and vectors that the index lacks."""
        return {"files": self.changes.count, "vectors": self.known.backlog.pending}

    @property
    def is_behind(self) -> bool:
        return any(self.behind.values()) or self.known.is_changing_model


def ledger_of(connection: Connection) -> Known:
    """What the index says of its files and vectors."""
    files = {
        path: Seen(size=size, mtime_ns=mtime_ns, outcome=outcome, chunking=chunking)
        for path, size, mtime_ns, outcome, chunking in ledger.seen(connection)
    }
    target = identity.target(connection)
    active = identity.active(connection)
    return Known(
        files=files,
        backlog=vectors.backlog(connection, target.id) if target else Backlog(),
        open_batches=len(batches.open_batches(connection)),
        workspace=str(meta.get(connection, meta.WORKSPACE, "") or ""),
        is_changing_model=bool(active and target and active.id != target.id),
    )


def discover_all(settings: AgentSettings) -> Discovery:
    """All files of the sources an agent has."""
    memory = settings.memory
    found = Discovery(found=(), issues=())
    if MEMORY in memory.sources:
        found = discover(settings.workspace, memory.extra_paths)
    if SESSIONS in memory.sources:
        # Loaded only where there are transcripts.
        from shared.sources.transcript_files import transcripts_of

        scope = transcripts_of(settings)
        found = found.joined(scope.discover()) if scope else found
    return found


def look(settings: AgentSettings, choice: Choice, known: Known) -> Plan:
    """Compare the disk with what the index says."""
    discovery = discover_all(settings)
    chunking = settings.memory.chunking
    sessions = settings.memory.sync.sessions
    changes = compare(
        discovery,
        known.files,
        chunking_digest(chunking.tokens, chunking.overlap),
        transcript_chunking=transcript_digest(chunking.tokens, chunking.overlap),
        growth=sessions.delta_bytes if sessions.delta_messages else 0,
    )
    return Plan(discovery=discovery, changes=changes, choice=choice, known=known)
