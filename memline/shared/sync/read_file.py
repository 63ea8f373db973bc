"""Read one path: what is on the disk now, as the row the ledger will have of it."""

from __future__ import annotations

import os
import traceback
from functools import partial
from typing import Any

from msgspec.structs import replace

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings, Chunking
from memline.shared.index import ledger
from memline.shared.index.ledger import LedgerEntry
from memline.shared.index.rows import FileRow
from memline.shared.sessions.programs import Transcripts, format_of, transcripts_of
from memline.shared.sources import outcomes
from memline.shared.sources.chunking import split
from memline.shared.sources.discover import problem_at
from memline.shared.sources.front_matter import about
from memline.shared.sources.markdown import front_matter_end
from memline.shared.sources.paths import (
    LONG_TERM,
    MEMORY,
    SESSIONS,
    MemoryPaths,
    is_transcript,
)
from memline.shared.sources.reading import read_file
from memline.shared.sync.plan import chunking_digest, transcript_digest


class FileReader:
    """Reads files of one agent, whatever their source."""

    def __init__(self, settings: AgentSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._notes = MemoryPaths.of(settings)

    def read(
        self,
        path: str,
        *,
        entry: LedgerEntry | None,
        force: bool = False,
    ) -> FileRow:
        """Read the file of a ledger path.

        `entry` is the row the ledger has of it. Never raises for what is on the disk.
        """
        if not is_transcript(path):
            return self._read_note(path, entry, force)
        transcripts, chunking = transcripts_of(self._settings), self._settings.memory.chunking
        return read_transcript(
            path,
            transcripts=transcripts,
            chunking=chunking,
            entry=entry,
            force=force,
            clock=self._clock,
        )

    def _read_note(self, path: str, entry: LedgerEntry | None, force: bool) -> FileRow:
        """Read a note and split it, unless its content is the one in the ledger.

        Whatever is wrong becomes the outcome of the row. A path that is not a memory file (any more) has the
        outcome `removed`, so nothing outside the memory is ever read.
        """
        row = FileRow(path=path, source=MEMORY, outcome=ledger.REMOVED, observed_ns=self._clock.now_ns())
        chunking = self._settings.memory.chunking
        if MEMORY not in self._settings.memory.sources:
            return row
        located = self._notes.locate(path)
        try:
            reading = located and read_file(located.absolute, root=located.anchor, clock=self._clock)
            if not reading or reading.outcome == outcomes.GONE:
                # A link, folder or name that a walk reports, or the file was removed.
                problem = problem_at(self._notes, path)
                return replace(row, outcome=problem.outcome, reason=problem.reason) if problem else row
            digest = chunking_digest(chunking.tokens, chunking.overlap)
            before = entry and (entry.outcome, entry.hash, entry.chunking, entry.source)
            parts: dict[str, Any] = {"chunks": ()}
            if reading.outcome == outcomes.INDEXED:
                if not force and before == (reading.outcome, reading.sha256, digest, MEMORY):
                    parts = {"chunks": None}
                else:
                    parts = parts_of(path, reading.text, chunking)
            return FileRow(
                path=path,
                source=MEMORY,
                outcome=reading.outcome,
                reason=reading.reason,
                size=reading.size,
                mtime_ns=reading.mtime_ns,
                ctime_ns=reading.ctime_ns,
                hash=reading.sha256,
                observed_ns=reading.observed_ns,
                chunking=digest,
                **parts,
            )
        except Exception as error:
            # A bug must not take the other files of the message with it; the ledger keeps what happened.
            return replace(row, outcome=outcomes.FAILED, reason=f"{type(error).__name__}: {error}")


def parts_of(path: str, text: str, chunking: Chunking) -> dict[str, Any]:
    """Return what the row of a note has of its text."""
    lines = text.split("\n")
    said = about(lines, front_matter_end(lines))
    return {
        "chunks": tuple(split(text, max_tokens=chunking.tokens, overlap_tokens=chunking.overlap)),
        "names": "\n".join(said.names),
        "tags": "\n".join(said.tags),
        "links": said.links,
        # The long-term note is about what holds, whatever its day.
        "day": "" if path in LONG_TERM else said.day,
    }


def read_transcript(
    path: str,
    *,
    transcripts: Transcripts | None,
    chunking: Chunking,
    entry: LedgerEntry | None,
    force: bool,
    clock: Clock,
) -> FileRow:
    """Read the transcript of a ledger path; a row without chunks when it is the one of the ledger.

    Without transcripts (the agent may see none) the path is `removed`. Never raises for what is on the disk.
    """
    # 8 ms, which a search that stores a changed note does not pay.
    from memline.shared.sessions.read_session import read_session

    row = FileRow(path=path, source=SESSIONS, outcome=ledger.REMOVED, observed_ns=clock.now_ns())
    if transcripts is None or transcripts.locate(path) is None:
        return row
    digest = transcript_digest(chunking.tokens, chunking.overlap)
    try:
        read = read_session(
            partial(transcripts.open, path),
            format=format_of(path),
            max_tokens=chunking.tokens,
            overlap_tokens=chunking.overlap,
            clock=clock,
        )
    except Exception as error:
        # A bug must not take the other files of the message with it; the ledger keeps what happened. Where,
        # not the words of the error: they may quote the transcript before its secrets were redacted.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})"
        return replace(row, outcome=outcomes.FAILED, reason=f"{type(error).__name__} in {where}")
    is_gone = read.outcome == outcomes.GONE and entry is not None and entry.outcome != ledger.REMOVED
    if is_gone and entry is not None and not transcripts.discover().is_archived(path):
        # Its program deleted it while the message was on its way: it stays until it is forgotten.
        return replace(
            row,
            outcome=entry.outcome,
            reason=entry.reason,
            size=entry.size,
            mtime_ns=entry.mtime_ns,
            ctime_ns=entry.ctime_ns,
            hash=entry.hash,
            chunking=entry.chunking,
            chunks=None,
        )
    row = replace(row, outcome=read.outcome, reason=read.reason)
    if not read.digest:
        return row
    known = entry and (entry.outcome, entry.hash, entry.chunking, entry.source)
    is_known = not force and known == (read.outcome, read.digest, digest, SESSIONS)
    return replace(
        row,
        size=read.size,
        mtime_ns=read.mtime_ns,
        ctime_ns=read.ctime_ns,
        hash=read.digest,
        chunking=digest,
        chunks=None if is_known else read.chunks,
        transcript=None if is_known else read.facts,
    )
