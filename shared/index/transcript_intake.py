"""One look at one transcript: what is new in it, as the rows the ledger will have of it."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from dataclasses import replace

from shared.clock import Clock
from shared.config.schema import Chunking
from shared.index import ledger
from shared.index.ledger import LedgerEntry
from shared.index.rows import ChunkRow, FileRow
from shared.sources import outcomes
from shared.sources.chunking_digest import transcript_digest
from shared.sources.transcript_files import TranscriptScope
from shared.sources.transcript_names import SESSIONS
from shared.sources.transcript_reading import Slice, read_transcript


def look_at_transcript(
    path: str,
    *,
    scope: TranscriptScope | None,
    chunking: Chunking,
    known: LedgerEntry | None,
    force: bool,
    clock: Clock,
) -> Iterator[FileRow]:
    """Read what is new of the transcript of a ledger path; all of it when it is not what the ledger knows.

    A long one comes in several rows, each continuing the one before; only the last says that the file was
    read to its end. Without a scope (the agent may see no transcripts) the path is `removed`. Never raises
    for what is on the disk.
    """
    observed_ns = clock.now_ns()
    located = scope.locate(path) if scope else None
    digest = transcript_digest(chunking.tokens, chunking.overlap)
    row = FileRow(path=path, source=SESSIONS, outcome=ledger.REMOVED, observed_ns=observed_ns)
    if located is None:
        problem = scope.problem_at(path) if scope else None
        yield replace(row, outcome=problem.outcome, reason=problem.reason) if problem else row
        return
    is_known = known is not None and known.chunking == digest and known.source == SESSIONS
    try:
        slices = read_transcript(
            located.anchor,
            os.path.relpath(located.absolute, located.anchor),
            known=known.progress if known and is_known and not force else None,
            known_digest=known.hash if known else "",
            max_tokens=chunking.tokens,
            overlap_tokens=chunking.overlap,
            clock=clock,
        )
        for number, part in enumerate(slices):
            # Each is newer than the one before, and all are older than any later look.
            yield _row(replace(row, observed_ns=observed_ns + number, chunking=digest), part, known)
    except Exception as error:
        # A bug must not take the other files of the message with it; the ledger keeps what happened. Where,
        # not the words of the error: they may quote what was said, before anything of it was masked.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})"
        yield replace(
            row,
            outcome=outcomes.FAILED,
            reason=f"{type(error).__name__} in {where}",
            observed_ns=clock.now_ns(),
        )


def _row(row: FileRow, part: Slice, known: LedgerEntry | None) -> FileRow:
    if not part.digest:
        return replace(row, outcome=part.outcome, reason=part.reason, chunking="")
    row = replace(
        row,
        outcome=part.outcome,
        reason=part.reason,
        size=part.size if part.is_last else part.progress.consumed,
        mtime_ns=part.mtime_ns if part.is_last else ledger.PARTLY,
        hash=part.digest,
    )
    if known is not None and _is_known(part, known):
        # Nothing but half a line, or another time.
        return replace(row, chunks=None)
    return replace(
        row,
        chunks=tuple(
            ChunkRow(
                start_line=chunk.start_line,
                end_line=chunk.end_line,
                text=chunk.text,
                heading=chunk.heading,
            )
            for chunk in part.chunks
        ),
        progress=part.progress,
        base=part.base,
        keeps=part.keeps,
        is_partial=not part.is_last,
    )


def _is_known(part: Slice, known: LedgerEntry) -> bool:
    # A slice that begins within a message builds on its own bytes too, but not on those of the ledger.
    return (
        part.base == part.digest == known.hash
        and known.outcome == part.outcome
        and known.mtime_ns != ledger.PARTLY
    )
