"""Read a transcript of any size in slices of bounded memory, from its start or from where it grew.

The digest of its bytes says what was read before. When the file still begins with them only the rest is read;
when it does not, because it was rewritten or cut short, all of it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, BinaryIO

from memline.shared.clock import Clock
from memline.shared.sources.chunking import Chunk
from memline.shared.sources.forgetting import line_hash
from memline.shared.sources.outcomes import EMPTY, INDEXED, NOT_TEXT, unreadable
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.transcripts.conversation_chunks import TurnChunker
from memline.shared.sources.transcripts.openclaw_files import FORMAT
from memline.shared.sources.transcripts.opening import OpenTranscript
from memline.shared.sources.transcripts.progress import ChunkStart, Progress
from memline.shared.sources.transcripts.stores import TranscriptFormat
from memline.shared.sources.transcripts.transcript_lines import TranscriptParser
from memline.shared.values import field, value
from memline.shared.words import counted

if TYPE_CHECKING:
    from hashlib import _Hash

#: Bytes read at a time.
BLOCK_BYTES = 1 << 20

#: Longest line that is read. A message with images in it has a few megabytes.
MAX_LINE_BYTES = 64 << 20

#: Characters of chunks in a slice, roughly.
SLICE_CHARS = 1_000_000


@value
class TranscriptSlice:
    """A part of a transcript as it is stored in the index, or the reason why there is none."""

    outcome: str
    reason: str = ""
    #: Chunks up to this ordinal stay; `chunks` replace all others.
    keeps: int = 0
    chunks: tuple[Chunk, ...] = ()
    #: Digest of the bytes this builds on; empty when it builds on nothing.
    base: str = ""
    #: Digest of all bytes read so far.
    digest: str = ""
    progress: Progress = field(default_factory=Progress)
    #: Whether the file has been read to its end, so that `size` and `mtime_ns` are those of the file.
    is_last: bool = True
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0


def read_transcript(
    open_: Callable[[], OpenTranscript],
    *,
    format: TranscriptFormat = FORMAT,
    known: Progress | None,
    known_digest: str,
    max_tokens: int,
    overlap_tokens: int,
    forgotten: Collection[bytes] = (),
    clock: Clock,
) -> Iterator[TranscriptSlice]:
    """Read a transcript in slices, up to what is there now. `open_` may raise FileRefused.

    `known` is where an earlier reading ended and `known_digest` the digest of what it read; None reads from
    the start. `forgotten` has the hashes of lines that are left out. Never raises for what is on the disk,
    never follows a link.
    """
    try:
        opened = open_()
    except FileRefused as error:
        yield TranscriptSlice(outcome=error.problem.outcome, reason=error.problem.reason)
        return
    try:
        reader = None
        if known is not None and 0 < known.consumed <= opened.size:
            digest = _digest_of(opened.file, known.consumed)
            if digest.hexdigest() == known_digest:
                reader = _Reader(opened, format, known, digest)
        if reader is None:
            reader = _Reader(opened, format, None, hashlib.sha256())
        yield from reader.slices(max_tokens, overlap_tokens, clock.now(), forgotten)
    except OSError as error:
        problem = unreadable(error)
        yield TranscriptSlice(outcome=problem.outcome, reason=problem.reason)
    finally:
        opened.file.close()


@value
class _Line:
    """A line with its end, or what there is of it."""

    #: From 1.
    number: int
    #: Its first byte, and the byte behind it.
    start: int
    stop: int
    data: bytes
    is_terminated: bool
    #: The digest of everything up to its end, when its bytes were too many to keep.
    digest: _Hash | None = None


class _Reader:
    """Reads an open file once, up to the size it had at the beginning."""

    def __init__(
        self, opened: OpenTranscript, format: TranscriptFormat, known: Progress | None, digest: _Hash
    ) -> None:
        self._opened = opened
        self._format = format
        self._known = known or Progress()
        self._base = digest.hexdigest() if known else ""
        self._digest = digest
        self._consumed = self._known.consumed
        self._lines_read = self._known.lines

    def slices(
        self, max_tokens: int, overlap_tokens: int, now: float, forgotten: Collection[bytes]
    ) -> Iterator[TranscriptSlice]:
        begin = self._known.resume
        parser = TranscriptParser(begin.context, self._known.counts, now=now, format=self._format)
        cutter = TurnChunker(begin, max_tokens=max_tokens, overlap_tokens=overlap_tokens)
        keeps, chunks, chars = begin.ordinal, [], 0
        for line in self._lines(begin):
            if forgotten and line.is_terminated and line_hash(line.data) in forgotten:
                self._mark_read(line)
                continue
            before = parser.context, parser.counts
            message = parser.read_line(line.data, is_counted=line.number > self._lines_read)
            if message is None and not line.is_terminated:
                # Half a record, or one without a message yet: it is read again with its end.
                parser.context, parser.counts = before
                break
            self._mark_read(line)
            if message is None:
                continue
            place = ChunkStart(
                offset=line.start,
                line=line.number,
                piece=begin.piece if line.number == begin.line else 0,
                context=before[0],
            )
            for piece in cutter.pieces(message, place, parser.context):
                for chunk in cutter.push(piece):
                    chunks.append(chunk)
                    chars += len(chunk.text)
                # Also within a message: the rest of it is read again from where the open chunk begins.
                if chars > SLICE_CHARS:
                    yield self._slice(keeps, chunks, self._progress(cutter, parser), is_last=False)
                    keeps, chunks, chars = cutter.ordinal, [], 0
        if last := cutter.open_chunk():
            chunks.append(last)
        yield self._slice(keeps, chunks, self._progress(cutter, parser), is_last=True)

    def _progress(self, cutter: TurnChunker, parser: TranscriptParser) -> Progress:
        nothing_yet = ChunkStart(offset=self._consumed, line=self._lines_read + 1, context=parser.context)
        return Progress(
            consumed=self._consumed,
            lines=self._lines_read,
            resume=cutter.resume() or nothing_yet,
            title=parser.context.title,
            counts=parser.counts,
        )

    def _slice(
        self, keeps: int, chunks: list[Chunk], progress: Progress, *, is_last: bool
    ) -> TranscriptSlice:
        base, self._base = self._base, self._digest.hexdigest()
        outcome, reason = _outcome(keeps + len(chunks), progress)
        return TranscriptSlice(
            outcome=outcome,
            reason=reason,
            keeps=keeps,
            chunks=tuple(chunks),
            base=base,
            digest=self._base,
            progress=progress,
            is_last=is_last,
            size=self._opened.size if self._opened.stored is None else self._opened.stored,
            mtime_ns=self._opened.mtime_ns,
            ctime_ns=self._opened.ctime_ns,
        )

    def _mark_read(self, line: _Line) -> None:
        """Count a line as read, and add what is new of it to the digest."""
        if line.stop > self._consumed:
            if line.digest is not None:
                self._digest = line.digest
            else:
                self._digest.update(line.data[max(0, self._consumed - line.start) :])
            self._consumed = line.stop
        self._lines_read = max(self._lines_read, line.number)

    def _lines(self, begin: ChunkStart) -> Iterator[_Line]:
        """Read the lines from `begin` on, up to the size the file had; one that is too long is skipped."""
        number, start, size = begin.line, begin.offset, self._opened.size
        file = self._opened.file
        file.seek(start)
        while start < size and (data := file.readline(min(MAX_LINE_BYTES, size - start))):
            stop, digest = start + len(data), None
            is_whole = data.endswith(b"\n")
            if not is_whole and len(data) == MAX_LINE_BYTES and stop < size:
                stop, is_whole, digest = self._skip_line(file, start, data)
                # Not a record: it is counted as broken, and nothing of it is kept.
                data = b"too long"
            yield _Line(
                number=number, start=start, stop=stop, data=data, is_terminated=is_whole, digest=digest
            )
            number, start = number + 1, stop

    def _skip_line(self, file: BinaryIO, start: int, data: bytes) -> tuple[int, bool, _Hash]:
        """Read on to the end of a line; return its end, whether it has one, and the digest up to there."""
        digest, stop = self._digest.copy(), start
        while data:
            digest.update(data[max(0, self._consumed - stop) :])
            stop += len(data)
            if data.endswith(b"\n"):
                break
            data = file.readline(min(BLOCK_BYTES, self._opened.size - stop))
        return stop, data.endswith(b"\n"), digest


def _digest_of(file: BinaryIO, size: int) -> _Hash:
    """Compute the digest of the first `size` bytes."""
    file.seek(0)
    digest = hashlib.sha256()
    while size and (block := file.read(min(BLOCK_BYTES, size))):
        digest.update(block)
        size -= len(block)
    return digest


def _outcome(chunks: int, progress: Progress) -> tuple[str, str]:
    broken = progress.counts.broken
    if chunks:
        return INDEXED, f"no valid record on {counted(broken, 'line')}, left out" if broken else ""
    if broken > progress.lines // 2:
        return NOT_TEXT, f"no valid record on {broken} of its {counted(progress.lines, 'line')}"
    return EMPTY, "it has no messages" if progress.lines else "no complete line yet"
