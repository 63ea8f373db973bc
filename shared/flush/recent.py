"""The end of a conversation, as much of it as a turn may be given."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from shared.flush.size import SessionSize, is_compaction, is_continued, lines_from
from shared.sources.safe_open import FileRefused, open_regular
from shared.sources.tokens import estimate_tokens
from shared.sources.transcript_progress import Counts, Standing
from shared.sources.transcripts import Talk


def recent_turns(
    folder: Path, name: str, size: SessionSize, *, start: int, max_tokens: int, now: float
) -> tuple[list[str], bool]:
    """`User: …` and `Assistant: …` from the byte `start` of a transcript to the next compaction, masked, and
    whether something was left out to stay within `max_tokens`. Nothing for a transcript that is gone.

    `size`: what was measured of it; one that was written anew since is read from its beginning.
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
        is_same = is_continued(opened, size)
        for _, line in lines_from(opened, start if is_same else 0):
            if is_same and is_compaction(line):
                # What comes now is the next cycle's.
                break
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
    said = [turn for turn, _ in turns]
    if tokens > max_tokens:
        # One turn alone: its beginning says what it is about.
        said, is_cut = [said[0][: len(said[0]) * max_tokens // tokens]], True
    return said, is_cut
