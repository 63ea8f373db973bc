"""Cut a text into chunks: runs of whole lines, never longer than the limit, cut where the text allows it.

A chunk is filled up to the limit, then ends at the best place of its last third: before a heading, else at
the end of a paragraph or fenced block, else before a list item, else at any line. Short sections share a
chunk; a line that does not fit is cut at sentences or words. Pictures pasted in as data URIs and drawings are
left out: 100 kB of them would be 96 chunks that say nothing.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, groupby

import msgspec

from memline.shared.sources.markdown import LIST_ITEM, Outline
from memline.shared.sources.tokens import CHARS_PER_TOKEN, pieces, weighted_length

#: A line that does not fit is cut into pieces of this share of a chunk: small enough to be an overlap.
_PIECE_SHARE = 8

#: A data URI in base64 (RFC 2397).
_DATA_URI = re.compile(r"data:[\w.+/;=-]{0,200};base64,[\w+/%=-]+", re.I)

#: What an item of a list begins with.
_ITEM_BEGINS = frozenset("-*+ \t0123456789")

#: Characters of a line of code or JSON that is data by itself; lines of code in a row that are.
_LONG, _RUN = 200, 4

#: A line of base64, or of bytes in hexadecimal, with their place before and their characters behind them.
_CODED = re.compile(
    r"(?=\S*[A-Z])(?=\S*\d)[A-Za-z0-9+/_-]{40,}={0,2}"
    r"|(?=[0-9: ]*[a-fA-F][0-9a-fA-F]*[ :])(?:[0-9a-fA-F]{7,8}:? +)?"
    r"(?:(?:[0-9a-fA-F]{2}){1,4}[ :]+){6,}.{0,20}"
)

# How good it is to cut before a unit, worst first.
WITHIN_LINE, WITHIN_BLOCK, AT_LINE, AT_ITEM, AT_PARAGRAPH, AT_HEADING = range(6)


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A run of lines of a text; `start_line` and `end_line` are 1-based and inclusive."""

    start_line: int
    end_line: int
    text: str
    #: The headings in force at the first line, `A > B`; a title in the front matter is the topmost.
    heading: str = ""


class Unit(msgspec.Struct, kw_only=True):
    """What a text is cut between: a line, a message, or a piece of a long one."""

    text: str
    #: As in the text, from 0.
    line: int
    weight: int
    #: How good it is to cut before it: one of the constants above.
    rank: int
    #: What stands between it and the next one.
    gap: str = "\n"
    #: It says nothing.
    is_blank: bool = False
    #: It belongs to what is below it.
    is_heading: bool = False
    #: Number of the block that is kept whole where that is possible; -1: none.
    block: int = -1


def split(lines: Sequence[str], shape: Outline, *, max_tokens: int, overlap_tokens: int) -> list[Chunk]:
    """Cut the lines of a note into chunks of `max_tokens` at most, in order.

    Every line that is neither blank nor a picture is in one; the last lines of one are the first of the next,
    as many as fit in `overlap_tokens`.
    """
    limit = max(1, max_tokens) * CHARS_PER_TOKEN
    titles = {heading.line for heading in shape.headings if heading.level}
    underlines = {heading.last_line for heading in shape.headings if heading.last_line >= 0}
    units = list(_units(lines, titles, underlines, shape.fences, limit))
    places, trails = shape.trails()
    return [
        Chunk(
            start_line=units[first].line + 1,
            end_line=units[last].line + 1,
            text="".join(each.text + each.gap for each in units[first:last]) + units[last].text,
            heading=trails[at - 1] if (at := bisect_right(places, units[first].line)) else "",
        )
        for first, last in cut(units, max_tokens=max_tokens, overlap_tokens=overlap_tokens)
    ]


def _units(
    lines: Sequence[str],
    titles: set[int],
    underlines: set[int],
    fences: Sequence[tuple[int, int]],
    limit: int,
) -> Iterator[Unit]:
    """Yield the lines of a note, those that do not fit in pieces.

    Weights are those of `tokens.weighted_length`; a newline weighs one.
    """
    data = _data_lines(lines, fences)
    block_of = {at: number for number, fence in enumerate(fences) for at in range(fence[0], fence[1] + 1)}
    #: Weight of the headings right above: a chunk needs room for them and the start of what is below.
    above = 0
    was_blank, was_block = False, -1
    for line, text in enumerate(lines):
        is_data, weight = line in data, weighted_length(text)
        is_heading, block = line in titles or line in underlines, block_of.get(line, -1)
        parts = [(text, is_data)]
        if weight + above > limit and text and not is_data:
            runs = _runs(text)
            parts = [(part, is_uri) for run, is_uri in runs for part in pieces(run, limit // _PIECE_SHARE)]
            # A heading that has to be cut is a paragraph like any other.
            is_heading = is_heading and len(parts) == 1
        is_blank = is_data or not text or text.isspace()
        if is_heading and line in titles:
            rank = AT_HEADING
        elif (is_heading and line in underlines) or (block >= 0 and block == was_block):
            rank = WITHIN_BLOCK
        elif is_blank or was_blank or block != was_block:
            rank = AT_PARAGRAPH
        else:
            rank = AT_ITEM if _is_item(text) else AT_LINE
        for number, (part, is_out) in enumerate(parts, 1):
            is_empty = is_out or not part or part.isspace()
            yield Unit(
                text=part,
                line=line,
                weight=weight if len(parts) == 1 else weighted_length(part),
                rank=rank,
                gap="\n" if number == len(parts) else "",
                is_blank=is_empty,
                is_heading=is_heading,
                block=block,
            )
            rank = WITHIN_LINE
        above = above + weight + 1 if is_heading or (above and is_blank) else 0
        was_blank, was_block = is_empty, block


def cut(units: Sequence[Unit], *, max_tokens: int, overlap_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last unit of each chunk; none weighs more than `max_tokens`, overlap included."""
    limit = max(1, max_tokens) * CHARS_PER_TOKEN
    # Above half there would be more repetition than progress.
    overlap = min(max(0, overlap_tokens) * CHARS_PER_TOKEN, limit // 2)
    return _Cutter(units, limit, overlap).chunks()


class _Cutter:
    def __init__(self, units: Sequence[Unit], limit: int, overlap: int) -> None:
        self._units, self._limit, self._overlap = units, limit, overlap
        #: Weight of everything before each unit, and the same up to its end without its gap.
        self._before = [0, *accumulate(unit.weight + len(unit.gap) for unit in units)]
        self._upto = [before + unit.weight for before, unit in zip(self._before, units, strict=False)]

    def chunks(self) -> Iterator[tuple[int, int]]:
        units = self._units
        start = fresh = 0
        while True:
            # Blank lines at the borders are left out; a chunk without any new text as well.
            while fresh < len(units) and units[fresh].is_blank:
                fresh += 1
            # Beside a picture there is no room for both what was before it and what is new.
            if start < fresh < len(units) and self._weight(start, fresh) > self._limit:
                start = fresh
            while start < fresh and units[start].is_blank:
                start += 1
            if fresh == len(units):
                return
            stop = self._end(start, fresh)
            last = stop - 1
            while units[last].is_blank:
                last -= 1
            yield start, last
            start, fresh = self._next_start(start, stop), stop

    def _weight(self, first: int, last: int) -> int:
        return self._upto[last] - self._before[first]

    def _block(self, unit: int) -> tuple[int, int] | None:
        """Return the first and last unit of the block that a unit belongs to."""
        if (number := self._units[unit].block) < 0:
            return None
        first = last = unit
        while first and self._units[first - 1].block == number:
            first -= 1
        while last + 1 < len(self._units) and self._units[last + 1].block == number:
            last += 1
        return first, last

    def _end(self, start: int, fresh: int) -> int:
        """Return the unit before which a chunk from `start` ends; at least the unit `fresh` is in it."""
        units, base = self._units, self._before[start]
        reach = bisect_right(self._upto, base + self._limit)
        if reach == len(units):
            return reach
        lowest = max(bisect_left(self._upto, base + self._limit * 2 // 3) + 1, fresh + 1)
        # The latest of the best.
        places = range(reach, lowest - 1, -1)
        best = max(places, key=lambda place: units[place].rank, default=reach)
        # A block that fits into a chunk of its own is kept whole, whatever room that leaves in this one.
        block = self._block(best) if not places or units[best].rank <= WITHIN_BLOCK else None
        if block and fresh < block[0] < best and self._weight(*block) <= self._limit:
            best = block[0]
        # A heading belongs to what is below it, unless the chunk would have nothing else.
        place = best
        while place > fresh and (units[place - 1].is_blank or units[place - 1].is_heading):
            place -= 1
        if place > fresh:
            while place < best and not units[place].is_heading:
                place += 1
            best = place
        return best

    def _next_start(self, start: int, stop: int) -> int:
        """Return the first unit of the next chunk: up to the overlap before `stop`, with some new text."""
        units = self._units
        if stop >= len(units) or not self._overlap:
            return stop
        # What has to fit with the overlap: the next unit, with a heading what is below it, a whole block.
        needed = stop
        furthest = min(bisect_right(self._upto, self._before[stop] + self._limit), len(units) - 1)
        while needed < furthest and (units[needed].is_heading or units[needed].is_blank):
            needed += 1
        if (block := self._block(needed)) and block[0] == needed:
            needed = block[1]
        if self._weight(stop, needed) > self._limit:
            needed = stop
        least = max(self._upto[stop - 1] - self._overlap, self._upto[needed] - self._limit)
        place = min(max(start + 1, bisect_left(self._before, least)), stop)
        if place < stop and (block := self._block(place)) and block[0] < place and block[1] < stop:
            # The end of a block without its beginning says nothing.
            place = block[1] + 1
        return place


def _data_lines(lines: Sequence[str], fences: Sequence[tuple[int, int]]) -> set[int]:
    """Return the lines, from 0, that are data of machines; `fences`: first and last line of each block.

    Obsidian's drawings are Markdown with a scene in a fence, plain or compressed; other plugins write their
    state there, on one line, and mail, certificates and dumps have code on many.
    """
    data = set[int]()
    coded = [at for at, line in enumerate(lines) if len(line) >= 40 and _CODED.fullmatch(line.strip())]
    # Lines in a row are as far from their places in the list.
    for _, group in groupby(enumerate(coded), key=lambda each: each[1] - each[0]):
        run = [at for _, at in group]
        if len(run) >= _RUN or any(len(lines[at]) >= _LONG for at in run):
            data.update(run)
    for first, last in fences:
        inside = lines[first + 1 : last]
        text = "".join(inside).strip()
        is_data = lines[first].lstrip("`~ ").lower().startswith("compressed-json")
        if not is_data and text[:1] in ("{", "["):
            is_scene = '"elements"' in text[:400] or '"nodes"' in text[:400]
            is_data = (is_scene or max(map(len, inside)) >= _LONG) and _is_json(text)
        if is_data:
            data.update(range(first, last + 1))
    # Marks beside it, such as the end of a comment.
    for at in sorted(data):
        for near in (at - 1, at + 1):
            if 0 <= near < len(lines) and near not in data and not any(map(str.isalnum, lines[near])):
                data.add(near)
    return data


def _is_json(text: str) -> bool:
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return True
    return False


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
    return text[:1] in _ITEM_BEGINS and LIST_ITEM.match(text) is not None
