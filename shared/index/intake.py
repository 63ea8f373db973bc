"""One look at one path: what is there now, as the row the ledger will have of it."""

from __future__ import annotations

from collections.abc import Iterator

from shared.clock import Clock
from shared.config.schema import AgentSettings, Chunking
from shared.index import ledger
from shared.index.ledger import LedgerEntry
from shared.index.rows import ChunkRow, FileRow
from shared.sources import outcomes
from shared.sources.chunking import split
from shared.sources.chunking_digest import chunking_digest
from shared.sources.reading import read_file
from shared.sources.refusal import problem_at
from shared.sources.scope import Scope
from shared.sources.transcript_names import MEMORY, is_transcript


class Intake:
    """Looks at files of one agent, whatever their source."""

    def __init__(self, settings: AgentSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._notes = Scope(settings.workspace, settings.memory.extra_paths)

    def look(self, path: str, *, known: LedgerEntry | None, force: bool = False) -> Iterator[FileRow]:
        """What the file of a ledger path is now: one row, of a long transcript several.

        `known` is what the ledger says of it. Never raises for what is on the disk.
        """
        chunking = self._settings.memory.chunking
        if is_transcript(path):
            # Loaded only where there are transcripts.
            from shared.index.transcript_intake import look_at_transcript
            from shared.sources.transcript_files import transcripts_of

            yield from look_at_transcript(
                path,
                scope=transcripts_of(self._settings),
                chunking=chunking,
                known=known,
                force=force,
                clock=self._clock,
            )
        elif MEMORY in self._settings.memory.sources:
            yield look_at(
                path,
                scope=self._notes,
                chunking=chunking,
                known=known,
                force=force,
                clock=self._clock,
            )
        else:
            yield FileRow(path=path, source=MEMORY, outcome=ledger.REMOVED, observed_ns=self._clock.now_ns())


def look_at(
    path: str,
    *,
    scope: Scope,
    chunking: Chunking,
    known: LedgerEntry | None,
    force: bool,
    clock: Clock,
) -> FileRow:
    """Read the file of a ledger path and split it, unless its content is the one the ledger knows.

    Never raises for what is on the disk: whatever is wrong becomes the outcome of the row. A path that is
    no memory file (any more) has the outcome `removed`, so nothing outside the memory is ever read.
    """
    observed_ns = clock.now_ns()
    located = scope.locate(path)
    try:
        reading = read_file(located.absolute, root=located.anchor, clock=clock) if located else None
        if reading is None or reading.outcome == outcomes.GONE:
            # A link, folder or name that a walk reports, or really gone.
            problem = problem_at(scope, path)
            return FileRow(
                path=path,
                source=MEMORY,
                outcome=problem.outcome if problem else ledger.REMOVED,
                reason=problem.reason if problem else "",
                observed_ns=observed_ns,
            )
        digest = chunking_digest(chunking.tokens, chunking.overlap)
        is_same = (
            known is not None
            and known.outcome == reading.outcome
            and known.hash == reading.sha256
            and known.chunking == digest
            and known.source == MEMORY
        )
        if reading.outcome != outcomes.INDEXED:
            chunks: tuple[ChunkRow, ...] | None = ()
        elif is_same and not force:
            chunks = None
        else:
            chunks = tuple(
                ChunkRow(
                    start_line=chunk.start_line,
                    end_line=chunk.end_line,
                    text=chunk.text,
                    heading=chunk.heading,
                )
                for chunk in split(reading.text, max_tokens=chunking.tokens, overlap_tokens=chunking.overlap)
            )
        return FileRow(
            path=path,
            source=MEMORY,
            outcome=reading.outcome,
            reason=reading.reason,
            size=reading.size,
            mtime_ns=reading.mtime_ns,
            hash=reading.sha256,
            observed_ns=reading.observed_ns,
            chunks=chunks,
            chunking=digest,
        )
    except Exception as error:
        # A bug must not take the other files of the message with it; the ledger keeps what happened.
        return FileRow(
            path=path,
            source=MEMORY,
            outcome=outcomes.FAILED,
            reason=f"{type(error).__name__}: {error}",
            observed_ns=observed_ns,
        )
