"""Make chunks of ours of those that OpenClaw has of a session transcript, where both say the same.

OpenClaw stores what was said as it is, or with masks of its own; we leave noise out and mask secrets. So its
chunks serve only when all their characters but spaces are our reading of the transcript, one after another,
from its first message to its last. Then they hold nothing that we mask, and their lines are those of ours.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import PurePosixPath

from memline.producers.bridges.other_indexes import TheirChunk
from memline.shared.clock import Clock
from memline.shared.index.rows import Chunk, FileRow
from memline.shared.sources.outcomes import INDEXED
from memline.shared.sources.paths import SESSIONS
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.transcripts.conversation_chunks import heading
from memline.shared.sources.transcripts.formats import Transcripts
from memline.shared.sources.transcripts.progress import ChunkStart, Counts, TranscriptContext
from memline.shared.sources.transcripts.transcript_lines import TranscriptParser
from memline.shared.sync.read_file import FileReader
from memline.shared.values import replace


def path_of(theirs: str) -> str:
    """Name a transcript as the ledger does; releases of 2026.9 put the agent before the file."""
    return f"{SESSIONS}/{PurePosixPath(theirs).name}"


def read(reader: FileReader, path: str) -> FileRow | None:
    """Read a transcript as it is now; None when it has no messages, or comes in several rows."""
    rows = reader.read(path, entry=None)
    row = next(rows)
    return row if row.outcome == INDEXED and row.progress is not None and not row.is_partial else None


def with_chunks(
    row: FileRow, found: Sequence[TheirChunk], transcripts: Transcripts, clock: Clock
) -> FileRow | None:
    """Return the row of a transcript with the chunks `found`; None when they are not all that it says.

    What is said later is cut into chunks behind them.
    """
    progress = row.progress
    data = _content(row.path, transcripts)
    if progress is None or hashlib.sha256(data[: progress.consumed]).hexdigest() != row.hash:
        return None
    parser = TranscriptParser(TranscriptContext(), Counts(), now=clock.now())
    said: list[str] = []
    starts: list[int] = []
    places: list[tuple[int, TranscriptContext]] = []
    size = 0
    for number, line in enumerate(data[: progress.consumed].split(b"\n"), 1):
        message = parser.read_line(line)
        if message is not None:
            said.append(_bare(f"{message.speaker}: {message.text}"))
            starts.append(size)
            places.append((number, parser.context))
            size += len(said[-1])
    everything = "".join(said)
    chunks: list[Chunk] = []
    first = covered = 0
    for each in found:
        text = _bare(each.text)
        first = everything.find(text, first) if text else -1
        if not 0 <= first <= covered:
            return None
        covered = max(covered, first + len(text))
        start = places[bisect_right(starts, first) - 1]
        end = places[bisect_right(starts, first + len(text) - 1) - 1]
        title = heading(start[1].day, end[1].title)
        chunks.append(Chunk(start_line=start[0], end_line=end[0], text=each.text, heading=title))
    if covered < size or not chunks:
        return None
    behind = ChunkStart(
        offset=progress.consumed, line=progress.lines + 1, ordinal=len(chunks), context=parser.context
    )
    return replace(row, chunks=tuple(chunks), progress=replace(progress, resume=behind))


def _bare(text: str) -> str:
    return "".join(text.split())


def _content(path: str, transcripts: Transcripts) -> bytes:
    try:
        opened = transcripts.open(path)
    except FileRefused:
        return b""
    with opened.file as file:
        return file.read()
