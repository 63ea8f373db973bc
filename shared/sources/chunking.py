"""Cutting a text into chunks: runs of whole lines, never longer than the limit, cut where the text allows it.

A chunk is filled up to the limit, then ends at the best place of its last third: before a heading, else at
the end of a paragraph or fenced block, else before a list item, else at any line. Short sections share a
chunk: one that holds a heading and little else is found for everything and answers nothing. Every chunk is a
contiguous part of the text, so its lines can be cited; a line that does not fit is cut at sentences or words.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from shared.sources.outline import Trail, outline
from shared.sources.tokens import CHARS_PER_TOKEN
from shared.sources.units import AT_HEADING, WITHIN_BLOCK, Units


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of lines of a text; `start_line` and `end_line` are 1-based and inclusive."""

    start_line: int
    end_line: int
    text: str
    #: The headings in force at the first line, `A > B`; a title in the front matter is the topmost.
    heading: str


def split(text: str, *, max_tokens: int, overlap_tokens: int) -> list[Chunk]:
    r"""The chunks of a text whose lines end with "\n" (see `reading.decode`), in order.

    Every line that is not blank is in one; the last lines of one are the first of the next, as many as fit
    in `overlap_tokens`. No chunk weighs more than `max_tokens`, overlap included, and none is blank.
    """
    limit = max(1, max_tokens) * CHARS_PER_TOKEN
    # Above half there would be more repetition than progress.
    overlap = min(max(0, overlap_tokens) * CHARS_PER_TOKEN, limit // 2)
    lines = text.split("\n")
    shape = outline(lines)
    units = Units(lines, shape, limit)
    trail = Trail(shape.headings)
    chunks: list[Chunk] = []
    start = fresh = 0
    while True:
        # Blank lines at the borders are left out; a chunk without any new text as well.
        while fresh < len(units) and units.is_blank(fresh):
            fresh += 1
        while start < fresh and units.is_blank(start):
            start += 1
        if fresh == len(units):
            return chunks
        stop = _end(units, start, fresh, limit)
        last = stop - 1
        while units.is_blank(last):
            last -= 1
        chunks.append(
            Chunk(
                start_line=units.line_of[start] + 1,
                end_line=units.line_of[last] + 1,
                text=text[units.offsets[start] : units.offsets[last] + len(units.texts[last])],
                heading=trail.at(units.line_of[start]),
            )
        )
        start, fresh = _next_start(units, start, stop, limit, overlap), stop


def _end(units: Units, start: int, fresh: int, limit: int) -> int:
    """The unit before which a chunk from `start` ends; at least the unit `fresh` is in it."""
    base = units.before[start]
    reach = bisect_right(units.upto, base + limit)
    if reach == len(units):
        return reach
    lowest = max(bisect_left(units.upto, base + limit * 2 // 3) + 1, fresh + 1)
    best, best_rank = reach, -1
    for place in range(reach, lowest - 1, -1):
        rank = units.rank(place)
        if rank > best_rank:
            best, best_rank = place, rank
            if rank == AT_HEADING:
                break
    # A block that fits into a chunk of its own is kept whole, whatever room that leaves in this one.
    if best_rank <= WITHIN_BLOCK and (fence := units.fence_around(best)):
        first, last = fence
        if first > fresh and units.weight(first, last) <= limit:
            best = first
    # A heading belongs to what is below it, unless the chunk would have nothing else.
    place = best
    while place > fresh and (units.is_blank(place - 1) or units.is_heading(place - 1)):
        place -= 1
    if place > fresh:
        while place < best and not units.is_heading(place):
            place += 1
        best = place
    return best


def _next_start(units: Units, start: int, stop: int, limit: int, overlap: int) -> int:
    """The first unit of the next chunk: before `stop` by at most `overlap`, never at the cost of new text."""
    if stop >= len(units) or not overlap:
        return stop
    # What has to fit beside the overlap: the next unit, with a heading what is below it, a block as a whole.
    needed = stop
    furthest = min(bisect_right(units.upto, units.before[stop] + limit), len(units) - 1)
    while needed < furthest and (units.is_heading(needed) or units.is_blank(needed)):
        needed += 1
    if fence := units.fence_from(needed):
        needed = fence[1]
    if units.weight(stop, needed) > limit:
        needed = stop
    least = max(units.upto[stop - 1] - overlap, units.upto[needed] - limit)
    place = min(max(start + 1, bisect_left(units.before, least)), stop)
    if place < stop and (fence := units.fence_around(place)) and fence[1] < stop:
        # The end of a block without its beginning tells nothing.
        place = fence[1] + 1
    return place
