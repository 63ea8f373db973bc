"""Join ranked chunks to passages, and choose the lines of each that are shown.

Neighbouring chunks overlap by a fifth, so the best hits of a long note repeat each other. Joined up to a
chunk and a half, six hits have .018 more of the evidence in conversations and .043 more in notes. Of that the
first 700 characters show half, the chosen run .84 in conversations and .78 in notes.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice

from memline.shared.search.matches import Row
from memline.shared.search.scorer import best_run, places
from memline.shared.search.terms import Needle, plain, stem
from memline.shared.sources.markdown import front_matter_end
from memline.shared.sources.tokens import has_dense, weighted_length

#: Chunks among which passages are made, one window after another; fixed, so that fewer hits are a prefix of
#: more. And the share of a neighbour's new lines that must fit; what does not fit is left out.
WINDOW, MOST_OF = 30, 0.5

#: Longest snippet, in characters, and what a word counts in it when it is seen again.
MAX_CHARS, AGAIN = 700, 0.3

#: A word with the accents that stand behind its letters; an underscore ends it, as in full text.
_WORD = re.compile(r"[^\W_]++(?:[\u0300-\u036f]++[^\W_]*+)*+")


class Passage:
    """Lines of a file that are shown as one hit, and its best chunk."""

    def __init__(self, best: Row) -> None:
        self.best, self.start, self.end = best, best.start, best.end
        self.lines = best.text.split("\n")

    @property
    def is_of_file(self) -> bool:
        """Whether its lines are those of the file: no piece of a long line, no messages."""
        return len(self.lines) == self.end - self.start + 1

    def join(self, row: Row, most: int) -> bool:
        """Add the lines of a chunk, up to `most`; return False where it is no neighbour or too long."""
        if row.start > self.end + 1 or row.end < self.start - 1:
            return False
        other = Passage(row)
        above = other.lines[: max(0, self.start - row.start)]
        below = other.lines[max(0, self.end + 1 - row.start) :]
        if not (self.is_of_file and other.is_of_file) or (above and below):
            return False
        first = max(row.start, self.start)
        both = zip(self.lines[first - self.start :], other.lines[first - row.start :], strict=False)
        if any(mine != its for mine, its in both):
            return False
        # The nearest first.
        new, room = below or above[::-1], most - weighted_length("\n".join(self.lines))
        if room < (least := MOST_OF * sum(map(len, new))):
            return False
        sizes = accumulate(weighted_length(line) + 1 for line in new)
        fitting = new[: sum(size <= room for size in sizes)]
        if sum(map(len, fitting)) < least:
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


def snippet(lines: Sequence[str], needles: Sequence[Needle]) -> tuple[str, int, int]:
    """Choose the lines with most evidence, and what follows and precedes them, without the front matter.

    Returns their text and the numbers of the first and the last, from 0.
    """
    skipped, bare = front_matter_end([*lines]), plain("\n".join(lines))
    skipped = skipped if any(lines[skipped:]) else 0
    sizes = [len(line) + 1 for line in lines]
    ends = [*accumulate(len(line) + 1 for line in bare.split("\n"))]
    words = {(bisect_right(ends, at), label): worth for at, label, worth in places(bare, needles)}
    # It is shown where all that was found stands in it.
    skipped = skipped if any(at >= skipped for at, _ in words) or not words else 0
    shown = [(at, label, worth) for (at, label), worth in words.items() if at >= skipped]
    runs = [(ends[at] - sizes[at], ends[at], label, worth) for at, label, worth in shown]
    _, begin, end = best_run(runs, MAX_CHARS + 1, AGAIN)
    first = bisect_right(ends, begin) if runs else skipped
    last = bisect_left(ends, end) + 1 if runs else skipped + 1
    room = MAX_CHARS + 1 - sum(sizes[first:last])
    while last < len(lines) and sizes[last] <= room:
        room, last = room - sizes[last], last + 1
    while first > skipped and sizes[first - 1] <= room:
        room, first = room - sizes[first - 1], first - 1
    while first < last - 1 and not lines[first].strip():
        first += 1
    while last > first + 1 and not lines[last - 1].strip():
        last -= 1
    text = "\n".join(lines[first:last]).strip()
    return text if len(text) <= MAX_CHARS else _cut(text, needles), first, last - 1


def matched(text: str, needles: Sequence[Needle]) -> tuple[str, ...]:
    """Return the words of a text that the question found, each once, in their order."""
    known = {part for needle, _, _ in needles for part in needle.split()}
    dense, found = [needle for needle in known if has_dense(needle)], dict[str, None]()
    begins = {needle[:3] for needle in known}
    words = dict.fromkeys(_WORD.findall(text))
    for word, bare in zip(words, plain("\n".join(words)).split("\n"), strict=False):
        # Most words end at the first look.
        if bare[:3] in begins and (bare in known or stem(bare) in known):
            found[word] = None
        elif dense:
            found |= dict.fromkeys(each for each in dense if each in bare)
    return tuple(found)


def _cut(line: str, needles: Sequence[Needle]) -> str:
    """Cut at most MAX_CHARS of a longer line, around the first word that was found."""
    low = line.lower()
    place = min((at for needle, _, _ in needles if (at := low.find(needle)) >= 0), default=0)
    start = max(0, min(place - 60, len(line) - MAX_CHARS + 2))
    end = start + MAX_CHARS - 2
    return "…" * bool(start) + line[start:end].strip() + "…" * (end < len(line))
