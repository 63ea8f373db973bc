"""Say which ceiling of `limits` texts wait for: why nothing is sent, and what to do about it.

The ceiling that an index has met is a row of it, so that every process says the same.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from memline.shared.config.installation import Ceilings
from memline.shared.index import meta
from memline.shared.values import to_json, value
from memline.shared.words import counted

if TYPE_CHECKING:
    from sqlite3 import Connection

#: What stands for a ceiling when a model has no price.
NO_PRICE = "prices"


@value
class Refusal:
    """Why nothing is sent: the ceiling that would be passed."""

    #: The key below `limits`; NO_PRICE when a ceiling in dollars cannot be kept.
    key: str
    limit: float
    spent: float
    model: str
    day: str

    @property
    def reason(self) -> str:
        if self.key == NO_PRICE:
            return f"no price is known for {self.model}, so limits.maxCostPerDay cannot be kept"
        amounts = f"{self._amount(self.spent)} of {self._amount(self.limit)}"
        return f"the ceiling limits.{self.key} is reached: {amounts} today, {self.day} UTC"

    @property
    def action(self) -> str:
        if self.key == NO_PRICE:
            price = f'prices: {{ "{self.model}": {{ perMillion: … }} }}'
            return f"set {price}, or limits.maxTokensPerDay; then run: memline index"
        resumes = f"embedding goes on at {_next_day(self.day)} 00:00 UTC"
        return f"{resumes}; or raise limits.{self.key}, then run: memline index"

    def _amount(self, amount: float) -> str:
        return counted(round(amount), "token") if "Tokens" in self.key else f"${amount:,.4f}"

    def to_json(self) -> dict[str, Any]:
        return to_json(self, "reason", "action")


def record_refusal(index: Connection, refusal: Refusal | None) -> None:
    """Record the ceiling that texts of an index wait for, None for none, in the caller's transaction."""
    names = ("key", "limit", "spent", "model", "day")
    found = {name: getattr(refusal, name) for name in names} if refusal else None
    if meta.get(index, meta.CEILING) != found:
        meta.put(index, meta.CEILING, found)


def refusal_of(index: Connection, ceilings: Ceilings, now: float) -> Refusal | None:
    """Return the ceiling that texts of an index wait for; None when its day is over, or it was changed."""
    found = meta.get(index, meta.CEILING)
    if found is None:
        return None
    refusal = Refusal(**found)
    if refusal.day != day_of(now):
        return None
    if refusal.key == NO_PRICE:
        return refusal
    return refusal if limits_of(ceilings)[refusal.key] == refusal.limit else None


def limits_of(ceilings: Ceilings) -> dict[str, float]:
    """Return the ceilings by their keys in the configuration; 0 is none."""
    return {
        "maxCostPerDay": ceilings.max_cost_per_day,
        "maxTokensPerDay": ceilings.max_tokens_per_day,
    }


def day_of(now: float) -> str:
    """Return the day of a time, in UTC: `2026-11-22`."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def _next_day(day: str) -> str:
    return (datetime.fromisoformat(day) + timedelta(days=1)).date().isoformat()
