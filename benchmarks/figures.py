"""A measured figure beside its target, and the table of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    what: str
    target: str
    measured: str
    #: None: there is no target, the figure explains another one.
    met: bool | None = None
    #: What the figure is made of.
    detail: str = ""

    @property
    def verdict(self) -> str:
        return {True: "met", False: "MISSED", None: ""}[self.met]


def at_most(what: str, value: float, limit: float, unit: str, *, detail: str = "") -> Figure:
    """A figure that must not be above `limit`."""
    return _figure(what, value, f"<= {limit:g}", unit, value <= limit, detail)


def at_least(what: str, value: float, limit: float, unit: str, *, detail: str = "") -> Figure:
    """A figure that must not be below `limit`."""
    return _figure(what, value, f">= {limit:g}", unit, value >= limit, detail)


def _figure(what: str, value: float, limit: str, unit: str, is_met: bool, detail: str) -> Figure:
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    measured = f"{value:.{decimals}f} {unit}"
    return Figure(what=what, target=f"{limit} {unit}", measured=measured, met=is_met, detail=detail)


def table(figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table, aligned for a terminal as well."""
    head = ("what", "target", "measured", "verdict", "made of")
    rows = [head] + [
        (figure.what, figure.target, figure.measured, figure.verdict, figure.detail) for figure in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
