"""`prices`: what embedding costs by the user's own word, by model; it wins over the table of list prices.

Only plans need it, so it is not part of `schema.py`, which every command imports.
"""

from __future__ import annotations

import re

from shared.config.block import Block, key
from shared.config.check import Leaf, Report, check_block, describe
from shared.values import value

_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


@value
class PriceEntry(Block):
    """`prices.<model>`: the price of one model."""

    per_million: float = key(0.0, low=0, doc="price of a million tokens by requests")
    batch_per_million: float = key(0.0, low=0, doc="price of a million tokens by batches; absent: not known")
    currency: str = key("USD", doc="currency of both")
    as_of: str = key("", doc="day the price was looked up, YYYY-MM-DD")


def read_prices(raw: object, *, at: str, report: Report) -> dict[str, dict[str, Leaf]]:
    """What is set of each model, by its name (`model`, or `provider/model`)."""
    if not isinstance(raw, dict):
        report.problem(
            f"{at}: found {describe(raw)}, allowed: an object", "write { model: { perMillion } } there"
        )
        return {}
    found = {}
    for model, entry in raw.items():
        here = f"{at}.{model}"
        leaves = check_block(PriceEntry, entry, at=here, report=report)
        if isinstance(entry, dict) and "perMillion" not in entry:
            report.problem(f"{here}: no price", "add perMillion, the price of a million tokens")
        as_of, origin = leaves.get("asOf", ("", ""))
        if as_of and not _DATE.fullmatch(as_of):
            report.problem(f"{origin}: found {describe(as_of)}, allowed: a day", "write it as 2026-02-28")
        found[model] = leaves
    return found
