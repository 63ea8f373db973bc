"""Read one path: what is on the disk now, as the row the ledger will have of it."""

from __future__ import annotations

import os
import traceback
from functools import cached_property
from typing import Any

from msgspec.structs import asdict, replace

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.index import ledger
from memline.shared.index.rows import FileRow, LedgerEntry
from memline.shared.sessions.transcripts import (
    SessionReading,
    Transcripts,
    transcripts_of,
)
from memline.shared.sources import outcomes
from memline.shared.sources.about import about
from memline.shared.sources.chunking import split
from memline.shared.sources.dates import day_of_path
from memline.shared.sources.discover import is_link_of
from memline.shared.sources.markdown import outline
from memline.shared.sources.paths import LONG_TERM, MEMORY, SESSIONS, MemoryPaths, is_transcript
from memline.shared.sources.reading import Reading, read_file
from memline.shared.sync.plan import chunking_digest


class FileReader:
    """Reads files of one agent, whatever their source."""

    def __init__(self, settings: AgentSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._chunking = settings.memory.chunking
        self._clock = clock
        self._notes = MemoryPaths.of(settings)

    @cached_property
    def _transcripts(self) -> Transcripts | None:
        return transcripts_of(self._settings)

    def read(self, path: str, *, entry: LedgerEntry | None, force: bool = False) -> FileRow:
        """Read the file of a ledger path; a row without chunks when its content is that of the ledger.

        `entry` is the row the ledger has of it; with `force` it is read in any case. What is no file of the
        memory (any more) has the outcome `removed`, so nothing else is ever read. Never raises for what is on
        the disk.
        """
        is_note = not is_transcript(path)
        source = MEMORY if is_note else SESSIONS
        row = FileRow(path=path, source=source, outcome=ledger.REMOVED, observed_ns=self._clock.now_ns())
        try:
            return self._read_note(row, entry, force) if is_note else self._read_session(row, entry, force)
        except Exception as error:
            # A bug must not take the other files of the message with it; the ledger keeps where it was. The
            # words of the error may quote the file before its secrets were redacted.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})"
            return replace(row, outcome=outcomes.FAILED, reason=f"{type(error).__name__} in {where}")

    def _read_note(self, row: FileRow, entry: LedgerEntry | None, force: bool) -> FileRow:
        if MEMORY not in self._settings.memory.sources:
            return row
        located = self._notes.locate(row.path)
        reading = located and read_file(located.absolute, root=located.anchor, clock=self._clock)
        if not reading or reading.outcome == outcomes.GONE:
            # A link to a folder, which a walk reports, or the file was removed.
            problem = outcomes.LINK_PROBLEM
            is_link = is_link_of(self._notes, row.path)
            return replace(row, outcome=problem.outcome, reason=problem.reason) if is_link else row
        row = replace(
            row,
            hash=reading.sha256,
            observed_ns=reading.observed_ns,
            chunking=chunking_digest(self._chunking),
            **_stamp(reading),
        )
        if reading.outcome != outcomes.INDEXED:
            return row
        if _is_known(row, entry) and not force:
            return replace(row, chunks=None)
        lines = reading.text.split("\n")
        shape = outline(lines)
        said = about(lines, shape)
        limits = {"max_tokens": self._chunking.tokens, "overlap_tokens": self._chunking.overlap}
        return replace(
            row,
            chunks=tuple(split(lines, shape, **limits)),
            names="\n".join(said.names),
            tags="\n".join(said.tags),
            links=said.links,
            # The long-term note is about what holds, whatever its day.
            day="" if row.path in LONG_TERM else said.day or str(day_of_path(row.path) or ""),
        )

    def _read_session(self, row: FileRow, entry: LedgerEntry | None, force: bool) -> FileRow:
        transcripts = self._transcripts
        if transcripts is None or not transcripts.covers(row.path):
            return row
        read = transcripts.read(
            row.path,
            max_tokens=self._chunking.tokens,
            overlap_tokens=self._chunking.overlap,
            clock=self._clock,
        )
        is_gone = read.outcome == outcomes.GONE and entry is not None and entry.outcome != ledger.REMOVED
        if is_gone and entry is not None and not transcripts.discover().is_archived(row.path):
            # Its program deleted it while the message was on its way: it stays until it is forgotten.
            return FileRow(**asdict(entry) | {"observed_ns": row.observed_ns, "chunks": None})
        row = replace(row, outcome=read.outcome, reason=read.reason)
        if not read.digest:
            return row
        row = replace(
            row,
            hash=read.digest,
            chunking=chunking_digest(self._chunking, SESSIONS),
            **_stamp(read),
        )
        if _is_known(row, entry) and not force:
            return replace(row, chunks=None)
        return replace(
            row, chunks=read.chunks, lines=read.lines, first_day=read.first_day, last_day=read.last_day
        )


def _stamp(read: Reading | SessionReading) -> dict[str, Any]:
    names = ("outcome", "reason", "size", "mtime_ns", "ctime_ns")
    return {name: getattr(read, name) for name in names}


def _is_known(row: FileRow, entry: LedgerEntry | None) -> bool:
    """Tell whether the ledger has this content, cut in this way."""
    content = (row.outcome, row.hash, row.chunking, row.source)
    return entry is not None and (entry.outcome, entry.hash, entry.chunking, entry.source) == content
