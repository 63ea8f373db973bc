"""The end of a conversation, as much of it as a turn may be given."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from shared.flush.size import lines_from
from shared.sources.safe_open import FileRefused, open_regular
from shared.sources.tokens import estimate_tokens
from shared.sources.transcript_progress import Counts, Standing
from shared.sources.transcripts import Talk


def recent_turns(
    folder: Path, name: str, *, start: int, max_tokens: int, now: float
) -> tuple[list[str], bool]:
    """`User: …` and `Assistant: …` from the byte `start` of a transcript on, masked, and whether earlier ones
    were left out to stay within `max_tokens`. Nothing for a transcript that is gone.
    """
    try:
        opened = open_regular(str(folder), name)
    except FileRefused:
        return [], False
    talk = Talk(Standing(), Counts(), now=now)
    turns: deque[tuple[str, int]] = deque()
    tokens = 0
    is_cut = False
    try:
        for _, line in lines_from(opened, start):
            message = talk.take(line)
            if message is None:
                continue
            turn = f"{message.speaker}: {message.text}"
            turns.append((turn, estimate_tokens(turn)))
            tokens += turns[-1][1]
            while tokens > max_tokens and len(turns) > 1:
                tokens -= turns.popleft()[1]
                is_cut = True
    finally:
        os.close(opened)
    return [turn for turn, _ in turns], is_cut
