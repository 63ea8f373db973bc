"""Add up what the terms of a question say of rows, in arrays.

Thousands of rows take a fifth of the time that dictionaries take. Needs numpy, which costs 110 ms to import.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from memline.shared.search.postings import Packed
from memline.shared.search.sums import FORM_WEIGHT, Sums

Rows = np.ndarray[Any, np.dtype[np.int64]]
Values = np.ndarray[Any, np.dtype[np.float64]]


class ArraySums(Sums):
    """What the terms said so far."""

    def __init__(self, size: int) -> None:
        """`size`: above every row."""
        self._totals: Values = np.zeros(size)
        #: Of each term: the rows that hold it, ascending, with their weights.
        self._holders: list[tuple[Rows, Values]] = []

    def begin(self) -> None:
        self._holders.append((np.zeros(0, np.int64), np.zeros(0)))

    def add(self, fits: Iterable[tuple[int, float]], worth: float, weight: float, *, is_signed: bool) -> int:
        rows, values = _arrays(fits)
        before, weights_before = self._holders[-1]
        if is_signed:
            is_stem = values <= 0
            values = np.where(is_stem, -values * FORM_WEIGHT, values)
            weights = np.where(is_stem, FORM_WEIGHT, 1.0)
            if len(before):
                _, here, there = np.intersect1d(rows, before, assume_unique=True, return_indices=True)
                weights[here] = np.where(is_stem[here], weights_before[there], 1.0)
        else:
            weights = np.full(len(rows), weight)
        self._totals[rows] += worth * values
        if len(before):
            others = ~np.isin(before, rows, assume_unique=True)
            all_rows = np.concatenate([rows, before[others]])
            order = np.argsort(all_rows, kind="stable")
            self._holders[-1] = all_rows[order], np.concatenate([weights, weights_before[others]])[order]
        else:
            self._holders[-1] = rows, weights
        return len(rows)

    def found(self) -> list[int]:
        return np.flatnonzero(self._totals).tolist()

    def strongest(self, count: int, number: int | None = None) -> list[int]:
        rows = np.flatnonzero(self._totals) if number is None else self._holders[number][0]
        sums = self._totals[rows]
        if len(rows) > count:
            least = np.partition(sums, len(rows) - count)[len(rows) - count]
            chosen = np.flatnonzero(sums >= least)
            rows, sums = rows[chosen], sums[chosen]
        best: list[int] = rows[np.argsort(-sums, kind="stable")[:count]].tolist()
        return best

    def count(self, number: int) -> int:
        return len(self._holders[number][0])

    def of(self, rows: Collection[int]) -> dict[int, float]:
        wanted = np.fromiter(rows, np.int64, len(rows))
        sums = self._totals[wanted]
        there = sums > 0
        return dict(zip(wanted[there].tolist(), sums[there].tolist(), strict=True))

    def held(self, rows: Collection[int]) -> list[dict[int, float]]:
        wanted = np.sort(np.fromiter(rows, np.int64, len(rows)))
        found: list[dict[int, float]] = []
        for all_rows, weights in self._holders:
            at = np.searchsorted(all_rows, wanted)
            at[at == len(all_rows)] = 0
            is_there = all_rows[at] == wanted if len(all_rows) else np.zeros(len(wanted), bool)
            found.append(dict(zip(wanted[is_there].tolist(), weights[at[is_there]].tolist(), strict=True)))
        return found


def _arrays(fits: Iterable[tuple[int, float]]) -> tuple[Rows, Values]:
    if isinstance(fits, Packed):
        return np.frombuffer(fits.rows, np.int64), np.frombuffer(fits.fits, np.float64)
    pairs = sorted(fits)
    rows = np.fromiter((row for row, _ in pairs), np.int64, len(pairs))
    return rows, np.fromiter((fit for _, fit in pairs), np.float64, len(pairs))
