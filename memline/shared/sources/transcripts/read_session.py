"""Read a session whole: its chunks, and what is known of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from memline.shared.clock import Clock
from memline.shared.sources.chunking import Chunk
from memline.shared.sources.outcomes import EMPTY, INDEXED, NOT_TEXT, unreadable
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.transcripts.conversation_chunks import TurnChunker
from memline.shared.sources.transcripts.facts import Counts, TranscriptContext, TranscriptFacts
from memline.shared.sources.transcripts.openclaw_files import FORMAT
from memline.shared.sources.transcripts.opening import OpenTranscript
from memline.shared.sources.transcripts.stores import TranscriptFormat
from memline.shared.sources.transcripts.transcript_lines import TranscriptParser
from memline.shared.values import field, value
from memline.shared.words import counted

#: Characters of the chunks of a session at most: what follows is left out, and the reason says so.
MAX_CHARS = 32_000_000


@value
class SessionReading:
    """A session as it is stored in the index, or the reason why there is none."""

    outcome: str
    reason: str = ""
    chunks: tuple[Chunk, ...] = ()
    #: SHA-256 (hex) of the lines that were read; empty when none could be.
    digest: str = ""
    facts: TranscriptFacts = field(default_factory=TranscriptFacts)
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0


def read_session(
    open_: Callable[[], OpenTranscript],
    *,
    format: TranscriptFormat = FORMAT,
    max_tokens: int,
    overlap_tokens: int,
    clock: Clock,
) -> SessionReading:
    """Read a session up to what is there now.

    Never raises for what is on the disk, never follows a link.
    """
    parser = TranscriptParser(TranscriptContext(), Counts(), now=clock.now(), format=format)
    cutter = TurnChunker(max_tokens=max_tokens, overlap_tokens=overlap_tokens)
    digest, chunks, lines, chars = hashlib.sha256(), list[Chunk](), 0, 0
    try:
        with open_() as opened:
            for number, line in enumerate(opened.lines, 1):
                is_whole = line.endswith(b"\n")
                before = parser.context, parser.counts
                message = parser.read_line(line)
                if message is None and not is_whole:
                    # Half a record, or one without a message yet: it is read with its end.
                    parser.context, parser.counts = before
                    break
                digest.update(line)
                lines = number
                if message is None:
                    continue
                for piece in cutter.pieces(message, number, parser.context):
                    closed = list(cutter.push(piece))
                    chunks += closed
                    chars += sum(len(chunk.text) for chunk in closed)
                if chars > MAX_CHARS:
                    break
    except FileRefused as error:
        return SessionReading(outcome=error.problem.outcome, reason=error.problem.reason)
    except OSError as error:
        problem = unreadable(error)
        return SessionReading(outcome=problem.outcome, reason=problem.reason)
    if last := cutter.open_chunk():
        chunks.append(last)
    facts = TranscriptFacts(title=parser.context.title, lines=lines, counts=parser.counts)
    outcome, reason = _outcome(len(chunks), facts)
    return SessionReading(
        outcome=outcome,
        reason=f"only the first {MAX_CHARS:,} characters are read" if chars > MAX_CHARS else reason,
        chunks=tuple(chunks),
        digest=digest.hexdigest(),
        facts=facts,
        size=opened.size,
        mtime_ns=opened.mtime_ns,
        ctime_ns=opened.ctime_ns,
    )


def _outcome(chunks: int, facts: TranscriptFacts) -> tuple[str, str]:
    broken = facts.counts.broken
    if chunks:
        return INDEXED, f"no valid record on {counted(broken, 'line')}, left out" if broken else ""
    if broken > facts.lines // 2:
        return NOT_TEXT, f"no valid record on {broken} of its {counted(facts.lines, 'line')}"
    return EMPTY, "it has no messages" if facts.lines else "no complete line yet"
