"""Cut a conversation into chunks: runs of messages, a long one in pieces.

A chunk is closed by the first piece that does not fit any more, at the best place of its last third: before a
question, else before an answer, else within a message. So nothing that follows changes a closed chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memline.shared.sources.chunking import Chunk
from memline.shared.sources.tokens import CHARS_PER_TOKEN, pieces, weighted_length
from memline.shared.sources.transcripts.facts import TranscriptContext
from memline.shared.sources.transcripts.transcript_lines import USER, Message
from memline.shared.values import value

# How good it is to cut before a piece, worst first.
WITHIN_MESSAGE, AT_ANSWER, AT_QUESTION = range(3)

#: Smallest chunk that has room for the names of the speakers.
_LABELLED_FROM = 64

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


@value
class Piece:
    """A message, or a part of a long one."""

    speaker: str
    text: str
    #: Of the text and the name of its speaker.
    weight: int
    #: How good it is to cut before it.
    rank: int
    #: Number of its line.
    line: int
    #: What holds after its line.
    context: TranscriptContext


class TurnChunker:
    """Makes chunks of the pieces that are pushed."""

    def __init__(self, *, max_tokens: int, overlap_tokens: int) -> None:
        self._limit = max(1, max_tokens) * CHARS_PER_TOKEN
        self._overlap = min(max(0, overlap_tokens) * CHARS_PER_TOKEN, self._limit // 2)
        self._is_labelled = self._limit >= _LABELLED_FROM
        self._open: list[Piece] = []
        self._weight = 0

    def pieces(self, message: Message, line: int, context: TranscriptContext) -> Iterator[Piece]:
        """Cut the message on a line into pieces."""
        label = len(message.speaker) + 2 if self._is_labelled else 0
        room = max(self._limit // 8, min(self._limit // 4, self._overlap)) - label
        whole = weighted_length(message.text)
        parts = [message.text] if whole <= self._limit // 2 - label else pieces(message.text, room)
        rank = AT_QUESTION if message.speaker == USER else AT_ANSWER
        for number, part in enumerate(parts):
            if text := part.strip():
                yield Piece(
                    speaker=message.speaker,
                    text=text,
                    weight=weighted_length(text) + label,
                    rank=WITHIN_MESSAGE if number else rank,
                    line=line,
                    context=context,
                )

    def push(self, piece: Piece) -> Iterator[Chunk]:
        """Add the next piece; return the chunks it closes."""
        while self._open and self._weight + 1 + piece.weight > self._limit:
            stop = self._end(piece)
            yield self._chunk(self._open[:stop])
            first = self._start(stop, self._open[stop] if stop < len(self._open) else piece)
            self._open = self._open[first:]
            self._weight = _weight(self._open)
        self._weight += piece.weight + bool(self._open)
        self._open.append(piece)

    def open_chunk(self) -> Chunk | None:
        """Return the chunk as it is if nothing follows; None before the first piece."""
        return self._chunk(self._open) if self._open else None

    def _end(self, following: Piece) -> int:
        """Return the piece before which the open chunk ends."""
        best, best_rank = len(self._open), following.rank
        weight = self._weight
        for stop in range(len(self._open) - 1, 0, -1):
            weight -= self._open[stop].weight + 1
            # What is not heavier than the overlap may be nothing but that.
            if weight < self._limit * 2 // 3 or weight <= self._overlap:
                break
            if self._open[stop].rank > best_rank:
                best, best_rank = stop, self._open[stop].rank
        return best

    def _start(self, stop: int, following: Piece) -> int:
        """Return the first piece of the next chunk: as many repeat as the overlap and the next one allow."""
        start = stop
        weight = 0
        rest = _weight(self._open[stop:]) or following.weight
        while start > 1:
            weight += self._open[start - 1].weight + 1
            if weight > self._overlap + 1 or weight + rest > self._limit:
                break
            start -= 1
        return start

    def _chunk(self, run: Sequence[Piece]) -> Chunk:
        lines = [
            f"{piece.speaker}: {piece.text}"
            if self._is_labelled and (piece.rank != WITHIN_MESSAGE or not number)
            else piece.text
            for number, piece in enumerate(run)
        ]
        return Chunk(
            start_line=run[0].line,
            end_line=run[-1].line,
            text="\n".join(lines),
            heading=heading(run[0].context.day, run[-1].context.title),
        )


def heading(day: str, title: str) -> str:
    """Return what a chunk is found by in addition to its words: `2026-02-10 10 February 2026 > title`."""
    words = ""
    if day:
        year, month, number = day.split("-")
        words = f"{day} {int(number)} {_MONTHS[int(month) - 1]} {year}"
    return " > ".join(filter(None, (words, title)))


def _weight(run: Sequence[Piece]) -> int:
    return sum(piece.weight for piece in run) + max(0, len(run) - 1)
