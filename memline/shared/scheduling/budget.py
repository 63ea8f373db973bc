"""Count what embedding costs, and keep it below the limits of a day (`limits`).

A request counts when it is leased, with estimated tokens; its answer corrects that day by the provider's own
`usage`. One that is never answered stays counted: it may have been paid for. A limit in money holds for
models with a price, one in tokens for the others, which are stopped where there is only a limit in money.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from sqlite3 import Connection
from typing import Any

import msgspec

from memline.shared.config.installation import Ceilings, PriceEntry
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.protocol import Identity
from memline.shared.finding import Finding, warning
from memline.shared.index import identities, vectors
from memline.shared.index.accounts import AccountFile, Accounts
from memline.shared.providers import LOCAL, price_of
from memline.shared.words import counted

#: What is counted: the modes of a provider, and questions.
REQUESTS, BATCH, QUESTIONS = "requests", "batch", "questions"

#: Part of a day's limit that texts may use: the rest is for questions, of some ten tokens each.
TEXTS_SHARE = 0.95

#: Days that spending is kept, and days of the longer sum of `spent`.
KEPT_DAYS, LONG_DAYS = 400, 30


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What pays for a request, a batch or a question."""

    identity: Identity
    account: str
    #: REQUESTS, BATCH or QUESTIONS.
    mode: str = REQUESTS


def _reached(key: str, limit: float, spent: float, now: float) -> Finding:
    def amount(value: float) -> str:
        return counted(round(value), "token") if "Tokens" in key else f"${value:,.4f}"

    amounts = f"{amount(spent)} of {amount(limit)} today, {day_of(now)} UTC"
    goes_on = f"embedding goes on at {day_of(now + 86_400)} 00:00 UTC"
    action = f"{goes_on}; or raise limits.{key}, then run: memline index"
    return warning("ceiling_reached", f"the ceiling limits.{key} is reached: {amounts}", action)


def _no_price(model: str) -> Finding:
    what = f"no price is known for {model}, so limits.maxCostPerDay cannot be kept"
    price = f'prices: {{ "{model}": {{ perMillion: … }} }}'
    action = f"set {price}, or limits.maxTokensPerDay; then run: memline index"
    return warning("ceiling_reached", what, action)


class Budget(msgspec.Struct, frozen=True):
    """What the agent of one index may spend."""

    file: AccountFile
    limits: Ceilings = Ceilings()
    #: That block of the configuration.
    prices: Mapping[str, PriceEntry] = {}

    @classmethod
    def of(cls, file: AccountFile, settings: AgentSettings) -> Budget:
        """Make the budget of an agent by its settings."""
        return cls(file, settings.content.limits, settings.content.prices)

    @property
    def has_limits(self) -> bool:
        return self.limits.max_cost_per_day > 0 or self.limits.max_tokens_per_day > 0

    def take(self, charge: Charge, tokens: int, now: float) -> Finding | None:
        """Count tokens that are about to be sent; or say which limit of the day they would pass."""
        if charge.identity.provider != LOCAL:
            with self.file.writing() as connection:
                left, refusal = self._left(connection, charge, now)
                if tokens > left:
                    return refusal
                self._add(connection, charge, day_of(now), tokens, 1)
                connection.execute("DELETE FROM spending WHERE day < ?", (day_of(now - KEPT_DAYS * 86_400),))
        return None

    def correct(self, charge: Charge, day: str, tokens: int, requests: int = 0) -> None:
        """Add these tokens and requests, which may be below 0, to what was counted on a day."""
        if charge.identity.provider != LOCAL and (tokens or requests):
            with self.file.writing() as connection:
                self._add(connection, charge, day, tokens, requests)

    def left(self, charge: Charge, now: float) -> tuple[float, Finding | None]:
        """Return the tokens that the limits leave, infinite without one; and say what holds for more."""
        if not self.has_limits or charge.identity.provider == LOCAL:
            return math.inf, None
        with self.file.reading() as connection:
            return self._left(connection, charge, now)

    def _per_million(self, charge: Charge) -> float | None:
        """Return the price of a million tokens; None when it is not known."""
        identity = charge.identity
        price = price_of(identity.provider, identity.model, public=not identity.endpoint, own=self.prices)
        if price is None:
            return None
        batch = price.batch_per_million if charge.mode == BATCH else None
        return price.per_million if batch is None else batch

    def _left(
        self, connection: Connection | None, charge: Charge, now: float
    ) -> tuple[float, Finding | None]:
        per_million, limits, day = self._per_million(charge), self.limits, day_of(now)
        cost, unpriced = connection.execute(_SPENT_IN_DAY, (day,)).fetchone() if connection else (0.0, 0)
        if per_million is not None:
            key, limit, spent = "maxCostPerDay", limits.max_cost_per_day, cost
        elif limits.max_tokens_per_day or not limits.max_cost_per_day:
            key, limit, spent = "maxTokensPerDay", limits.max_tokens_per_day, unpriced
        else:
            return 0.0, _no_price(charge.identity.model)
        if not limit or per_million == 0:
            return math.inf, None
        room = limit * (1.0 if charge.mode == QUESTIONS else TEXTS_SHARE) - spent
        # A millionth of a token more than the room is a matter of floating point.
        left = max(0.0, room / ((per_million or 1e6) / 1e6) + 1e-6)
        return left, _reached(key, limit, spent, now)

    def _add(self, connection: Connection, charge: Charge, day: str, tokens: int, requests: int) -> None:
        per_million = self._per_million(charge)
        cost = None if per_million is None else tokens * per_million / 1e6
        keys = (day, charge.account, charge.identity.model, charge.mode)
        connection.execute(_ADD, (*keys, requests, tokens, cost))


_SPENT_IN_DAY = """
SELECT coalesce(sum(cost), 0), coalesce(sum(iif(cost IS NULL, tokens, 0)), 0) FROM spending WHERE day = ?
"""

_ADD = """
INSERT INTO spending VALUES (?1, ?2, ?3, ?4, max(0, ?5), max(0, ?6), max(0, ?7))
ON CONFLICT DO UPDATE SET
    requests = max(0, requests + ?5), tokens = max(0, tokens + ?6), cost = max(0, cost + ?7)
"""


def ceiling_reached(accounts: Accounts, settings: AgentSettings, now: float) -> Finding | None:
    """Say which limit of the day the texts of an index wait for; None when they wait for none."""
    target = identities.target(accounts.index)
    texts = vectors.next_texts(accounts.index, target.id, 1, math.inf) if target is not None else []
    if target is None or not texts:
        return None
    charge = Charge(identity=target.identity, account=accounts.of(target.identity.provider))
    left, refusal = Budget.of(accounts.file, settings).left(charge, now)
    return refusal if texts[0][1] > left else None


def day_of(now: float) -> str:
    """Return the day of a time, in UTC: `2026-11-22`."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


_SPENT = """
SELECT substr(account, 1, instr(account || ':', ':') - 1) AS provider, model, sum(requests), sum(tokens),
    round(coalesce(sum(cost), 0.0), 8), sum(iif(cost IS NULL, tokens, 0))
FROM spending WHERE day BETWEEN ? AND ? GROUP BY provider, model ORDER BY provider, model
"""


def spent(file: AccountFile, ceilings: Ceilings, now: float) -> dict[str, Any]:
    """Report what all agents of a home spent today (UTC) and in thirty days, by provider and model."""
    today, names = day_of(now), ("requests", "tokens", "cost", "unpricedTokens")
    nothing, sums = dict.fromkeys(names, 0), dict[str, Any]()
    models: dict[tuple[str, str], dict[str, Any]] = {}
    with file.reading() as connection:
        # The longer first: it has all models.
        for period, days in (("thirtyDays", LONG_DAYS), ("today", 1)):
            begin, sums[period] = day_of(now - (days - 1) * 86_400), nothing
            for provider, model, *counts in connection.execute(_SPENT, (begin, today)) if connection else ():
                row = dict(zip(names, counts, strict=True))
                entry = {"provider": provider, "model": model, "today": nothing}
                models.setdefault((provider, model), entry)[period] = row
                sums[period] = {name: round(sums[period][name] + row[name], 8) for name in names}
    cost, tokens = ceilings.max_cost_per_day or None, ceilings.max_tokens_per_day or None
    limits = {"maxCostPerDay": cost, "maxTokensPerDay": tokens}
    return {"day": today, **sums, "models": [*models.values()], "limits": limits}
