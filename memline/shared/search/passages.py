"""Join ranked chunks to passages: hits of one file that overlap or adjoin are one hit.

Neighbouring chunks overlap by a fifth, so the best hits of a long note repeat each other. Joined up to a
chunk and a half, six hits have .018 more of the evidence in conversations and .043 more in notes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, islice

from memline.shared.search.matches import Row
from memline.shared.sources.tokens import weighted_length

#: Chunks among which passages are made, one window after another; fixed, so that fewer hits are a prefix of
#: more.
WINDOW = 20

#: Share of a neighbour's new lines that must fit into the passage; what does not fit is left out.
MOST_OF = 0.5


class Passage:
    """Lines of a file that are shown as one hit, and its best chunk."""

    def __init__(self, best: Row) -> None:
        self.best, self.start, self.end = best, best.start, best.end
        self.lines = best.text.split("\n")

    @property
    def is_of_file(self) -> bool:
        """Say whether its lines are those of the file: no piece of a long line, no messages."""
        return len(self.lines) == self.end - self.start + 1

    def join(self, row: Row, most: int) -> bool:
        """Add the lines of a chunk of the file that are not here; False where it is no neighbour or too long.

        `most`: the weight of a passage.
        """
        other = Passage(row)
        above = other.lines[: max(0, self.start - row.start)]
        below = other.lines[max(0, self.end + 1 - row.start) :]
        is_near = row.start <= self.end + 1 and row.end >= self.start - 1
        if not (is_near and self.is_of_file and other.is_of_file) or (above and below):
            return False
        first = max(row.start, self.start)
        both = zip(self.lines[first - self.start :], other.lines[first - row.start :], strict=False)
        if any(mine != its for mine, its in both):
            return False
        # The nearest first.
        new, room = below or above[::-1], most - weighted_length("\n".join(self.lines))
        sizes = accumulate(weighted_length(line) + 1 for line in new)
        fitting = new[: sum(size <= room for size in sizes)]
        if sum(map(len, fitting)) < MOST_OF * sum(map(len, new)):
            return False
        if below:
            self.lines, self.end = [*self.lines, *fitting], self.end + len(fitting)
        else:
            self.lines, self.start = [*fitting[::-1], *self.lines], self.start - len(fitting)
        return True


def passages(ranked: Iterable[Row], *, wanted: int, max_tokens: int) -> list[Passage]:
    """Make the first `wanted` passages, none above `max_tokens` unless a chunk is."""
    made, rows = list[Passage](), iter(ranked)
    while len(made) < wanted and (window := [*islice(rows, WINDOW)]):
        of_file: dict[int, list[Passage]] = {}
        for row in window:
            neighbours = of_file.setdefault(row.file_id, [])
            if not any(each.join(row, max_tokens * 4) for each in neighbours):
                made.append(Passage(row))
                neighbours.append(made[-1])
    return made[:wanted]
