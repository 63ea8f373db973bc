"""Read a past conversation around a hit, from the index: its texts are masked, whatever they came from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from sqlite3 import Connection

import msgspec

from memline.shared.sources.excerpt import DEFAULT_LINES, Excerpt, Part
from memline.shared.sources.paths import SESSIONS

_SPEAKER = re.compile(r"(?:User|Assistant): ")

#: Chunks that are read for an excerpt at most: more never fit.
_MOST_CHUNKS = 500

#: Chunks before and after that are read for the turns around: a turn may have several.
_MOST_AROUND = 50

_PLACES = """
SELECT ordinal, start_line, end_line FROM chunks JOIN files ON files.id = chunks.file_id
WHERE path = ? AND source = ? ORDER BY ordinal
"""
_CHUNKS = """
SELECT ordinal, start_line, end_line, text FROM chunks JOIN files ON files.id = chunks.file_id
WHERE path = ? AND source = ? AND ordinal BETWEEN ? AND ? ORDER BY ordinal
"""


class _Line(msgspec.Struct, kw_only=True):
    """A line of the conversation, in the order in which it was said."""

    text: str
    is_cited: bool
    #: Of its chunk: its place, and the first line of the transcript that it comes from.
    ordinal: int
    start_line: int


def read_turns(connection: Connection, path: str, part: Part) -> Excerpt | None:
    """Read what was said on these lines of a transcript; None when it is not in the index.

    Given are whole chunks, as a search cites them, and the turns around them as far as `max_chars` reaches.
    `first` and `lines` of the excerpt are those of the chunks that it comes from.
    """
    around, max_chars = part.around, part.max_chars
    first = max(1, part.first)
    last = first + (part.lines or DEFAULT_LINES) - 1
    places = connection.execute(_PLACES, (path, SESSIONS)).fetchall()
    # One that was forgotten has its row alone.
    if not places:
        return None
    named = [ordinal for ordinal, start, end in places if end >= first and start <= last]
    if not named:
        next_from = min((start for _, start, _ in places if start > last), default=None)
        return Excerpt(
            path=path, text="", first=first, lines=0, truncated=next_from is not None, next_from=next_from
        )
    lowest, highest = named[0], named[-1]
    highest = min(highest, lowest + _MOST_CHUNKS)
    reach = _MOST_AROUND if around else 0
    # One more: a turn may go on.
    span = lowest - reach, highest + reach + 1
    rows = connection.execute(_CHUNKS, (path, SESSIONS, *span)).fetchall()
    chars, most = 0, lowest
    for ordinal, _, _, text in rows:
        chars += len(text) + 1 if ordinal >= lowest else 0
        if lowest <= ordinal <= highest and chars <= max_chars:
            most = ordinal
    turns = list(_turns(_lines(rows, lowest, most)))
    cited = [number for number, turn in enumerate(turns) if any(line.is_cited for line in turn)]
    start, stop = cited[0], cited[-1] + 1
    room = max_chars - _chars(turns[start:stop])
    if room < 0:
        # Of a turn that is too long what was asked for.
        turns[start:stop] = [[line for line in turn if line.is_cited] for turn in turns[start:stop]]
    for distance in range(1, around + 1):
        # What followed explains more than what came before. Nothing is left out in between.
        after, before = cited[-1] + distance, cited[0] - distance
        if most == highest and after == stop < len(turns) and _chars([turns[after]]) <= room:
            room -= _chars([turns[after]])
            stop += 1
        if 0 <= before == start - 1 and _chars([turns[before]]) <= room:
            room -= _chars([turns[before]])
            start -= 1
    shown = [line for turn in turns[start:stop] for line in turn]
    text = "\n".join(line.text for line in shown)[part.column - 1 :]
    # The last chunk that is shown as a whole.
    whole = most if most < highest else shown[-1].ordinal
    if most == highest and stop < len(turns) and room >= 0:
        whole = max(most, turns[stop][0].ordinal - 1)
    begin, end = shown[0].start_line, max(row[2] for row in rows if row[0] <= whole)
    following = next((place for place in places if place[0] > whole), None)
    next_from, is_cut = None, len(text) > max_chars
    if following is not None:
        _, next_start, next_end = following
        # A line that goes on in the next chunk comes once more, but the line that was asked for is over.
        next_from = max(first + 1, next_start if next_end <= end else max(next_start, end + 1))
        is_cut |= next_start <= first
    return Excerpt(
        path=path,
        text=text[:max_chars],
        first=begin,
        lines=end - begin + 1,
        truncated=is_cut or (following is not None and (part.lines is None or most < highest)),
        next_from=next_from,
        cut=is_cut,
        rest=f"{path}#L{first}C{part.column + max_chars}" if len(text) > max_chars else "",
    )


def _lines(rows: list[tuple[int, int, int, str]], lowest: int, highest: int) -> list[_Line]:
    """Join chunks, which repeat the end of the one before; those from `lowest` to `highest` are cited."""
    joined: list[_Line] = []
    last = 0
    for ordinal, start_line, end_line, text in rows:
        is_cited, texts = lowest <= ordinal <= highest, text.split("\n")
        if joined and start_line <= last:
            both = next(
                (
                    count
                    for count in range(min(len(joined), len(texts)), 0, -1)
                    if [line.text for line in joined[len(joined) - count + 1 :]] == texts[1:count]
                    and joined[-count].text in (texts[0], _SPEAKER.sub("", texts[0], count=1))
                ),
                0,
            )
            for line in joined[len(joined) - both :]:
                line.is_cited |= is_cited
            # A message goes on: its chunk names the speaker once more.
            texts = texts[both:] if both else [_SPEAKER.sub("", texts[0], count=1), *texts[1:]]
        joined += (
            _Line(text=each, is_cited=is_cited, ordinal=ordinal, start_line=start_line) for each in texts
        )
        last = end_line
    return joined


def _turns(lines: list[_Line]) -> Iterator[list[_Line]]:
    turn: list[_Line] = []
    for line in lines:
        if turn and _SPEAKER.match(line.text):
            yield turn
            turn = []
        turn.append(line)
    if turn:
        yield turn


def _chars(turns: list[list[_Line]]) -> int:
    return sum(len(line.text) + 1 for turn in turns for line in turn)
