"""Cut a text into chunks: runs of whole lines, never longer than the limit, cut where the text allows it.

A chunk is filled up to the limit, then ends at the best place of its last third: before a heading, else at
the end of a paragraph or fenced block, else before a list item, else at any line. Short sections share a
chunk: one with a heading and little else would be a hit for everything and answer nothing. Every chunk is a
contiguous part of the text, so its lines can be cited; a line that does not fit is cut at sentences or words.
A picture that was pasted in as a data URI is left out, and so are drawings and other data of machines
(`machine_data.py`): 100 kB of it would be 96 chunks that say nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import add

import msgspec

from memline.shared.sources.machine_data import data_lines
from memline.shared.sources.markdown import Outline, Trail, outline
from memline.shared.sources.tokens import CHARS_PER_TOKEN, has_dense, pieces, weighted_length

#: A line that does not fit is cut into pieces of this share of a chunk: small enough to be an overlap.
_PIECE_SHARE = 8

#: A data URI in base64 (RFC 2397).
_DATA_URI = re.compile(r"data:[\w.+/;=-]{0,200};base64,[\w+/%=-]+", re.I)

# How good it is to cut before a unit, worst first.
WITHIN_LINE, WITHIN_BLOCK, AT_LINE, AT_ITEM, AT_PARAGRAPH, AT_HEADING = range(6)


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A run of lines of a text; `start_line` and `end_line` are 1-based and inclusive."""

    start_line: int
    end_line: int
    text: str
    #: The headings in force at the first line, `A > B`; a title in the front matter is the topmost.
    heading: str = ""


def split(text: str, *, max_tokens: int, overlap_tokens: int) -> list[Chunk]:
    r"""Cut a text whose lines end with "\n" (see `reading.decode`) into chunks, in order.

    Every line that is neither blank nor a picture is in one; the last lines of one are the first of the next,
    as many as fit in `overlap_tokens`. No chunk weighs more than `max_tokens`, overlap included, and none is
    blank.
    """
    limit = max(1, max_tokens) * CHARS_PER_TOKEN
    # Above half there would be more repetition than progress.
    overlap = min(max(0, overlap_tokens) * CHARS_PER_TOKEN, limit // 2)
    lines = text.split("\n")
    shape = outline(lines)
    units = NoteUnits(lines, shape, limit)
    trail = Trail(shape.headings)
    return [
        Chunk(
            start_line=units.line_of[first] + 1,
            end_line=units.line_of[last] + 1,
            text=text[units.offsets[first] : units.offsets[last] + len(units.texts[last])],
            heading=trail.at(units.line_of[first]),
        )
        for first, last in cut(units, limit=limit, overlap=overlap)
    ]


class Units:
    """What a text is cut between: lines or pieces of long ones, or messages; with their weights and ranks."""

    #: Weight of everything before each unit, and the same up to its end without its newline.
    before: Sequence[int]
    upto: Sequence[int]

    def __len__(self) -> int:
        return len(self.upto)

    def weight(self, first: int, last: int) -> int:
        """Return the weight of the units from `first` to `last`, both included."""
        return self.upto[last] - self.before[first]

    def rank(self, unit: int) -> int:
        """Return how good it is to cut before `unit` (not the first): one of the constants above."""
        raise NotImplementedError

    def is_blank(self, unit: int) -> bool:
        """Tell whether a unit says nothing."""
        return False

    def is_heading(self, unit: int) -> bool:
        """Tell whether a unit belongs to what is below it."""
        return False

    def fence_around(self, unit: int) -> tuple[int, int] | None:
        """Return the first and last unit of the block that a cut before `unit` would break."""
        return None

    def fence_from(self, unit: int) -> tuple[int, int] | None:
        """Return the first and last unit of the block that begins at `unit`."""
        return None


def cut(units: Units, *, limit: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last unit of each chunk; none weighs more than `limit`, overlap included."""
    start = fresh = 0
    while True:
        # Blank lines at the borders are left out; a chunk without any new text as well.
        while fresh < len(units) and units.is_blank(fresh):
            fresh += 1
        # Beside a picture there is no room for both what was before it and what is new.
        if start < fresh < len(units) and units.weight(start, fresh) > limit:
            start = fresh
        while start < fresh and units.is_blank(start):
            start += 1
        if fresh == len(units):
            return
        stop = _end(units, start, fresh, limit)
        last = stop - 1
        while units.is_blank(last):
            last -= 1
        yield start, last
        start, fresh = _next_start(units, start, stop, limit, overlap), stop


def _end(units: Units, start: int, fresh: int, limit: int) -> int:
    """Return the unit before which a chunk from `start` ends; at least the unit `fresh` is in it."""
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
    """Return the first unit of the next chunk: up to `overlap` before `stop`, with some new text."""
    if stop >= len(units) or not overlap:
        return stop
    # What has to fit with the overlap: the next unit, with a heading what is below it, a block as a whole.
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
        # The end of a block without its beginning says nothing.
        place = fence[1] + 1
    return place


class NoteUnits(Units):
    """Divides a text into units, lines or pieces of long ones; knows their weights and how good cuts are.

    Weights are those of `tokens.weighted_length`; a newline weighs one.
    """

    def __init__(self, lines: list[str], shape: Outline, limit: int) -> None:
        """`limit` is the weight of a chunk: a line above it, or above what its heading leaves, is cut."""
        self._fences = shape.fences
        self._titles = {heading.line for heading in shape.headings if heading.level}
        self._underlines = {heading.last_line for heading in shape.headings if heading.last_line >= 0}
        self.texts = lines
        #: Those that are data of machines, and as good as blank.
        self._data = data_lines(lines, shape.fences)
        #: The line of each unit, from 0.
        self.line_of: Sequence[int] = range(len(lines))
        dense = any(map(has_dense, lines))
        weigh = weighted_length if dense else len
        weights = list(map(weigh, lines))
        newlines = [1] * len(lines)
        if max(weights) > limit // 2 and self._cut_long_lines(weights, limit):
            weights = list(map(weigh, self.texts))
            newlines = [
                int(line != after) for line, after in zip(self.line_of, [*self.line_of[1:], -1], strict=True)
            ]
        #: Weight of everything before each unit, and the same up to its end without its newline.
        self.before: list[int] = [0, *accumulate(map(add, weights, newlines))]
        self.upto: list[int] = list(map(add, self.before, weights))
        #: Place of each unit in the text, in characters.
        self.offsets = [0, *accumulate(map(add, map(len, self.texts), newlines))] if dense else self.before

    def is_blank(self, unit: int) -> bool:
        text = self.texts[unit]
        return not text or text.isspace() or unit in self._data

    def is_heading(self, unit: int) -> bool:
        line = self.line_of[unit]
        return line in self._titles or line in self._underlines

    def fence_around(self, unit: int) -> tuple[int, int] | None:
        """Return the first and last unit of the fenced block that a cut before `unit` would break."""
        line = self.line_of[unit]
        index = bisect_left(self._fences, (line, 0)) - 1
        if index < 0 or self._fences[index][1] < line:
            return None
        return self._in_units(self._fences[index])

    def fence_from(self, unit: int) -> tuple[int, int] | None:
        """Return the first and last unit of the fenced block that begins at `unit`."""
        line = self.line_of[unit]
        index = bisect_left(self._fences, (line, 0))
        if index == len(self._fences) or self._fences[index][0] != line:
            return None
        return self._in_units(self._fences[index])

    def rank(self, unit: int) -> int:
        """Return how good it is to cut before `unit` (not the first): one of the constants above."""
        line = self.line_of[unit]
        if line == self.line_of[unit - 1]:
            return WITHIN_LINE
        if line in self._titles:
            return AT_HEADING
        if line in self._underlines or (self._fences and self.fence_around(unit)):
            return WITHIN_BLOCK
        if self.is_blank(unit) or self.is_blank(unit - 1) or (self._fences and self._is_border(unit)):
            return AT_PARAGRAPH
        return AT_ITEM if _is_item(self.texts[unit]) else AT_LINE

    def _is_border(self, unit: int) -> bool:
        if self.fence_from(unit):
            return True
        index = bisect_left(self._fences, (self.line_of[unit], 0)) - 1
        return index >= 0 and self._fences[index][1] == self.line_of[unit] - 1

    def _in_units(self, lines: tuple[int, int]) -> tuple[int, int]:
        return bisect_left(self.line_of, lines[0]), bisect_right(self.line_of, lines[1]) - 1

    def _cut_long_lines(self, weights: list[int], limit: int) -> bool:
        """Replace lines that do not fit by pieces; False when there are none."""
        texts: list[str] = []
        line_of: list[int] = []
        data: set[int] = set()
        #: Weight of the headings right above: a chunk needs room for them and the start of what is below.
        above = 0
        for line, text in enumerate(self.texts):
            is_data_line = line in self._data
            if is_data_line:
                data.add(len(texts))
            if text and weights[line] + above > limit and not is_data_line:
                for run, is_data in _runs(text):
                    parts = list(pieces(run, limit // _PIECE_SHARE))
                    if is_data:
                        data.update(range(len(texts), len(texts) + len(parts)))
                    texts.extend(parts)
                line_of.extend([line] * (len(texts) - len(line_of)))
            else:
                texts.append(text)
                line_of.append(line)
            if self.is_heading(line) or (above and self.is_blank(line)):
                above += weights[line] + 1
            else:
                above = 0
        if len(texts) == len(self.texts):
            return False
        self.texts, self.line_of, self._data = texts, line_of, data
        # A heading that had to be cut is a paragraph like any other.
        cut = {line for line, after in pairwise(line_of) if line == after}
        self._titles -= cut
        self._underlines -= cut
        return True


def _runs(line: str) -> Iterator[tuple[str, bool]]:
    """Cut a line where data URIs begin and end; with whether a part is one, or a mark beside it (`)`)."""
    end = 0
    for match in _DATA_URI.finditer(line):
        before = line[end : match.start()]
        yield before, not any(map(str.isalnum, before))
        yield match[0], True
        end = match.end()
    yield line[end:], end > 0 and not any(map(str.isalnum, line[end:]))


def _is_item(text: str) -> bool:
    start = text.lstrip()
    if start[:2] in ("- ", "* ", "+ "):
        return True
    number = start[:10].split(" ", 1)[0]
    return number[-1:] in (".", ")") and number[:-1].isdigit()
