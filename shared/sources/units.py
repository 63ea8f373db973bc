"""The units that chunks are made of, lines or pieces of long ones: their weight, how good a cut is there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import add

from shared.sources.long_lines import pieces
from shared.sources.outline import Outline
from shared.sources.tokens import has_dense, weighted_length

#: A line that does not fit is cut into pieces of this share of a chunk: small enough to be an overlap.
_PIECE_SHARE = 8

# How good it is to cut before a unit, worst first.
WITHIN_LINE, WITHIN_BLOCK, AT_LINE, AT_ITEM, AT_PARAGRAPH, AT_HEADING = range(6)


class Units:
    """A text as a row of units. Weights are those of `tokens.weighted_length`, a newline weighs one."""

    def __init__(self, lines: list[str], shape: Outline, limit: int) -> None:
        """`limit` is the weight of a chunk: a line above it, or above what its heading leaves, is cut."""
        self._fences = shape.fences
        self._titles = {heading.line for heading in shape.headings if heading.level}
        self._underlines = {heading.last_line for heading in shape.headings if heading.last_line >= 0}
        self.texts = lines
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

    def __len__(self) -> int:
        return len(self.texts)

    def weight(self, first: int, last: int) -> int:
        """Weight of the units from `first` to `last`, both included."""
        return self.upto[last] - self.before[first]

    def is_blank(self, unit: int) -> bool:
        text = self.texts[unit]
        return not text or text.isspace()

    def is_heading(self, unit: int) -> bool:
        line = self.line_of[unit]
        return line in self._titles or line in self._underlines

    def fence_around(self, unit: int) -> tuple[int, int] | None:
        """First and last unit of the fenced block that a cut before `unit` would break."""
        line = self.line_of[unit]
        index = bisect_left(self._fences, (line, 0)) - 1
        if index < 0 or self._fences[index][1] < line:
            return None
        return self._in_units(self._fences[index])

    def fence_from(self, unit: int) -> tuple[int, int] | None:
        """First and last unit of the fenced block that begins at `unit`."""
        line = self.line_of[unit]
        index = bisect_left(self._fences, (line, 0))
        if index == len(self._fences) or self._fences[index][0] != line:
            return None
        return self._in_units(self._fences[index])

    def rank(self, unit: int) -> int:
        """How good it is to cut before `unit` (not the first), one of the constants above."""
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
        #: Weight of the headings right above: a chunk needs room for them and the start of what is below.
        above = 0
        for line, text in enumerate(self.texts):
            if text and weights[line] + above > limit:
                parts = list(pieces(text, limit // _PIECE_SHARE))
                texts.extend(parts)
                line_of.extend([line] * len(parts))
            else:
                texts.append(text)
                line_of.append(line)
            if self.is_heading(line) or (above and self.is_blank(line)):
                above += weights[line] + 1
            else:
                above = 0
        if len(texts) == len(self.texts):
            return False
        self.texts, self.line_of = texts, line_of
        # A heading that had to be cut is a paragraph like any other.
        cut = {line for line, after in pairwise(line_of) if line == after}
        self._titles -= cut
        self._underlines -= cut
        return True


def _is_item(text: str) -> bool:
    start = text.lstrip()
    if start[:2] in ("- ", "* ", "+ "):
        return True
    number = start[:10].split(" ", 1)[0]
    return number[-1:] in (".", ")") and number[:-1].isdigit()
