"""Order and page the rows of a table by links, so that both work without script."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from memline.producers.web.page import View
from memline.shared.errors import BadRequest
from memline.shared.values import value

#: Rows of a page.
PAGE = 50

#: What a row is ordered by; None comes last, both ways round.
Key = Callable[[Any], Any]


def by(**columns: str | Key) -> dict[str, Key]:
    """Return the keys of columns: each a function of a row, or where the value is in it: `texts.total`."""
    return {name: key if callable(key) else partial(_at, key.split(".")) for name, key in columns.items()}


def _at(path: Sequence[str], row: Any) -> Any:
    for part in path:
        if isinstance(row, tuple):
            row = row[int(part)]
        else:
            row = row[part] if isinstance(row, Mapping) else getattr(row, part)
    return row


@value
class Listing:
    """The rows of one page of a table, and the links to the others."""

    rows: Sequence[Any]
    #: Names of the columns that can order it, and the one that does: with a minus the largest first.
    columns: Collection[str]
    order: str
    #: Number of the first row, and whether there are rows behind the last.
    first: int
    has_more: bool
    #: The other fields of the address.
    query: Mapping[str, str]
    size: int = PAGE

    def href(self, column: str) -> str:
        """Return the address at which a column orders it; of the one that does, the other way round."""
        order = f"-{column}" if self.order == column else column
        return f"?{urlencode({**self.query, 'sort': order})}"

    def direction(self, column: str) -> str:
        """Say how a column orders it, as `aria-sort` has it; empty when it does not."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.order, "")

    @property
    def before(self) -> str:
        return self._at(max(0, self.first - self.size)) if self.first else ""

    @property
    def after(self) -> str:
        return self._at(self.first + self.size) if self.has_more else ""

    @property
    def words(self) -> str:
        return f"{self.first + 1:,} to {self.first + len(self.rows):,}" if self.before or self.after else ""

    def _at(self, first: int) -> str:
        order = {"sort": self.order} if self.order else {}
        return f"?{urlencode({**self.query, **order, 'first': first})}"


def asked(view: View, columns: Collection[str], default: str = "") -> tuple[str, dict[str, str]]:
    """Return the order that a page is asked for, and the other fields of its address. Raises BadRequest."""
    order = view.query.get("sort") or default
    if order and order.removeprefix("-") not in columns:
        raise BadRequest(f"{order[:40]!r} is not a column", hint=f"sort by one of: {', '.join(columns)}")
    return order, {name: text for name, text in view.query.items() if name not in ("sort", "first")}


def listing(view: View, rows: Iterable[Any], keys: Mapping[str, Key]) -> Listing:
    """Order and page rows that are all there; unasked they stay in their order."""
    order, query = asked(view, keys)
    found, first = list(rows), view.number("first", 0)
    if order:
        key = keys[order.removeprefix("-")]
        known = (row for row in found if key(row) is not None)
        unknown = [row for row in found if key(row) is None]
        found = sorted(known, key=key, reverse=order.startswith("-")) + unknown
    return Listing(
        rows=found[first : first + PAGE],
        columns=keys,
        order=order,
        first=first,
        has_more=len(found) > first + PAGE,
        query=query,
    )
