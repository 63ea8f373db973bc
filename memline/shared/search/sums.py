"""Add up what the terms of a question say of rows, and which term is held by which row.

Here in dictionaries; `array_sums` does the same in arrays, for a process that has numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import nlargest

#: What counts less than the word itself; 1/4 and 1/2 found less.
FORM_WEIGHT = 1 / 3


class Sums:
    """What the terms said so far, the last one first to be added to."""

    def __init__(self) -> None:
        self._sums: dict[int, float] = {}
        self._held: list[dict[int, float]] = []

    def begin(self) -> None:
        """Go on to the next term."""
        self._held.append({})

    def add(self, fits: Iterable[tuple[int, float]], worth: float, weight: float, *, is_signed: bool) -> int:
        """Add (row, fit) of a way to find the term; returns how many.

        `is_signed`: a negative fit is that of a row that holds the stem alone. What holds the term in several
        ways has the weight of the last.
        """
        holders = self._held[-1]
        if is_signed:
            both = list(fits)
            scores = {row: worth * (fit if fit > 0 else -fit * FORM_WEIGHT) for row, fit in both}
            weights = {row: 1.0 if fit > 0 else holders.get(row, FORM_WEIGHT) for row, fit in both}
        else:
            scores = {row: worth * fit for row, fit in fits}
            weights = dict.fromkeys(scores, weight)
        holders |= weights
        if self._sums:
            sums = self._sums
            for row, score in scores.items():
                sums[row] = sums.get(row, 0.0) + score
        else:
            self._sums = scores
        return len(scores)

    def found(self) -> list[int]:
        """Return all rows, ascending."""
        return sorted(self._sums)

    def strongest(self, count: int, number: int | None = None) -> list[int]:
        """Return the best rows, the first ones among equals; `number`: of those that hold this term."""
        return strongest(count, self._sums if number is None else self._held[number], self._sums)

    def count(self, number: int) -> int:
        """Count the rows that hold a term."""
        return len(self._held[number])

    def of(self, rows: Collection[int]) -> dict[int, float]:
        """Return the sums of those of `rows` that hold a term."""
        return {row: self._sums[row] for row in rows if row in self._sums}

    def held(self, rows: Collection[int]) -> list[dict[int, float]]:
        """Return for each term the weights of those of `rows` that hold it."""
        return [{row: holders[row] for row in rows if row in holders} for holders in self._held]


def strongest(count: int, rows: Collection[int], sums: Mapping[int, float]) -> list[int]:
    """Return the best rows, the first ones among equals."""
    if len(rows) > 20 * count:
        return nlargest(count, sorted(rows), key=sums.__getitem__)
    # The same in C: a third of the time for a few times as many as are wanted.
    return sorted(sorted(rows), key=sums.__getitem__, reverse=True)[:count]
