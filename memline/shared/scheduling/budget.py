"""Keep what embedding costs below the ceilings of `limits`, and know what was spent.

What is sent is counted before it is sent, in rows of the account file, which all agents, processes and
batches of a home share. So workers that send at the same time never go above a ceiling together, and a
process that is killed leaves what it had in flight counted: it may have been paid for. The answer sets the
count right: a request that certainly cost nothing is given back, one whose parts were sent twice counts
twice. Tokens are estimated, as everywhere.

    reserve ─► spending + reservation ─► settle: spending set right
                                     └─► never settled: spending stays, the reservation a week

A ceiling in money holds for models with a price, one in tokens for models without. A ceiling of money that
cannot be kept, since a model has no price, stops that model instead of being passed over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memline.shared.config.installation import Ceilings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.protocol import Identity
from memline.shared.index.accounts import AccountFile, note_settled
from memline.shared.index.driver import scalar
from memline.shared.providers import LOCAL, price_of
from memline.shared.scheduling.ceilings import NO_PRICE, Refusal, day_of, limits_of
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: What is counted: the modes of a provider, and questions.
REQUESTS, BATCH, QUESTIONS = "requests", "batch", "questions"

#: Part of a day's ceiling that texts may use. The rest is for questions, so that search by meaning goes on
#: when texts wait: a question has some ten tokens.
TEXTS_SHARE = 0.95

#: Days that spending is kept, and seconds that a reservation without an answer is.
KEPT_DAYS, KEPT_RESERVATION_S = 400, 7 * 86_400.0

#: Days of the longer sum of `spent`.
LONG_DAYS = 30


@value
class Charge:
    """What pays for a request, a batch or a question."""

    identity: Identity
    account: str
    #: REQUESTS, BATCH or QUESTIONS.
    mode: str = REQUESTS


class Budget:
    """What the agent of one index may spend. Safe to use from several threads."""

    def __init__(
        self,
        file: AccountFile,
        *,
        ceilings: Ceilings | None = None,
        prices: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`prices`: that block of the configuration."""
        self._file = file
        self.ceilings = ceilings or Ceilings()
        self._prices = prices or {}

    @classmethod
    def of(cls, file: AccountFile, settings: AgentSettings) -> Budget:
        """Make the budget of an agent by its settings."""
        return cls(file, ceilings=settings.limits, prices=settings.prices)

    @property
    def has_ceilings(self) -> bool:
        return any(limits_of(self.ceilings).values())

    def reserve(
        self, charge: Charge, token: str, tokens: int, now: float, *, at_least: int = 0
    ) -> int | Refusal:
        """Count tokens that are about to be sent; returns them, or the ceiling that they would pass.

        `token` names the lease or batch whose answer settles it; empty: nothing does. `at_least`: so few are
        reserved when the ceilings leave no more; 0: all or nothing.
        """
        if charge.identity.provider == LOCAL:
            return tokens
        with self._file.writing() as connection:
            left, refusal = self._left(connection, charge, now)
            if tokens > left and not 0 < at_least <= left:
                assert refusal is not None
                return refusal
            tokens = int(min(tokens, left))
            self._count(connection, charge, token, tokens, now)
        return tokens

    def left(self, charge: Charge, now: float) -> float | Refusal:
        """Return the tokens that the ceilings leave, infinite without one; or the ceiling that is reached."""
        if not self.has_ceilings or charge.identity.provider == LOCAL:
            return math.inf
        with self._file.reading() as connection:
            left, refusal = self._left(connection, charge, now)
        return refusal if refusal is not None and left < 1 else left

    def resize(self, charge: Charge, token: str, tokens: int, now: float) -> None:
        """Count a batch with so many tokens, before it is sent: its reservation is made, or set right."""
        if charge.identity.provider == LOCAL:
            return
        with self._file.writing() as connection:
            if scalar(connection, "SELECT 1 FROM reservations WHERE token = ?", token) is None:
                self._count(connection, charge, token, tokens, now)
            else:
                _correct(connection, token, tokens)
                connection.execute("UPDATE reservations SET tokens = ? WHERE token = ?", (tokens, token))

    def reserved(self, token: str) -> int:
        """Return the tokens that a request or batch in flight is counted with; 0 when it is settled."""
        return self._reservation(token) or 0

    def cost_of(self, token: str, tokens: int) -> float | None:
        """Return what so many tokens of a reservation cost, in dollars; None where no price is known."""
        with self._file.reading() as reader:
            query = "SELECT per_million FROM reservations WHERE token = ?"
            per_million = scalar(reader, query, token) if reader is not None else None
        return None if per_million is None else tokens * per_million / 1e6

    def settle(self, token: str, tokens: int | None, calls: int = 1) -> None:
        """Set right what a request or batch was counted with, once it is answered; again changes nothing.

        `tokens`, `calls`: what was perhaps paid for, and in how many calls; None when that is not known, so
        that all counts: its worker was killed.
        """
        if self._reservation(token) is None:
            return
        with self._file.writing() as connection:
            if tokens is not None:
                _correct(connection, token, tokens, calls=calls)
            connection.execute("DELETE FROM reservations WHERE token = ?", (token,))
            note_settled(connection, token)

    def _reservation(self, token: str) -> int | None:
        """Return the tokens that a request is counted with."""
        with self._file.reading() as reader:
            if reader is None:
                return None
            tokens: int | None = scalar(reader, "SELECT tokens FROM reservations WHERE token = ?", token)
            return tokens

    def _per_million(self, charge: Charge) -> float | None:
        """Return the price of a million tokens; None when it is not known."""
        identity = charge.identity
        if identity.provider == "ollama" and not identity.endpoint:
            # A program on this machine.
            return 0.0
        price = price_of(identity.provider, identity.model, public=not identity.endpoint, own=self._prices)
        if price is None:
            return None
        batch = price.batch_per_million if charge.mode == BATCH else None
        return price.per_million if batch is None else batch

    def _left(
        self, connection: Connection | None, charge: Charge, now: float
    ) -> tuple[float, Refusal | None]:
        """Return the tokens that the ceilings leave, and the one that leaves the least."""
        if not self.has_ceilings:
            return math.inf, None
        each, day, per_million = self.ceilings, day_of(now), self._per_million(charge)
        cost, unpriced = connection.execute(_SPENT_IN_DAY, (day,)).fetchone() if connection else (0.0, 0)
        if per_million is None and each.max_cost_per_day and not each.max_tokens_per_day:
            limit, spent, rate, name = 0.0, 0.0, 1.0, NO_PRICE
        elif per_million is None:
            limit, spent, rate, name = each.max_tokens_per_day, unpriced, 1.0, "maxTokensPerDay"
        else:
            limit, spent, rate, name = each.max_cost_per_day, cost, per_million / 1e6, "maxCostPerDay"
        if not rate or (not limit and name != NO_PRICE):
            return math.inf, None
        room = limit * (1.0 if charge.mode == QUESTIONS else TEXTS_SHARE) - spent
        refusal = Refusal(key=name, limit=limit, spent=spent, model=charge.identity.model, day=day)
        # A millionth of a token more than the room is a matter of floating point.
        return max(0.0, room / rate + 1e-6), refusal

    def _count(self, connection: Connection, charge: Charge, token: str, tokens: int, now: float) -> None:
        per_million, day = self._per_million(charge), day_of(now)
        keys = (day, charge.account, charge.identity.model, charge.mode)
        cost, unpriced = _amounts(tokens, per_million)
        connection.execute(
            "INSERT INTO spending VALUES (?, ?, ?, ?, 1, ?, ?, ?) ON CONFLICT (day, account, model, mode)"
            " DO UPDATE SET requests = requests + 1, tokens = tokens + excluded.tokens,"
            " cost = cost + excluded.cost, unpriced = unpriced + excluded.unpriced",
            (*keys, tokens, cost, unpriced),
        )
        if token:
            connection.execute(
                "INSERT OR REPLACE INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (token, *keys, tokens, per_million, now),
            )
        connection.execute("DELETE FROM reservations WHERE at < ?", (now - KEPT_RESERVATION_S,))
        connection.execute("DELETE FROM spending WHERE day < ?", (day_of(now - KEPT_DAYS * 86_400),))


_SPENT_IN_DAY = "SELECT coalesce(sum(cost), 0), coalesce(sum(unpriced), 0) FROM spending WHERE day = ?"


def _amounts(tokens: int, per_million: float | None) -> tuple[float, int]:
    return (0.0, tokens) if per_million is None else (tokens * per_million / 1e6, 0)


def _correct(connection: Connection, token: str, tokens: int, *, calls: int = 1) -> None:
    """Let a reservation count with so many tokens, in its day."""
    row = connection.execute(
        "SELECT day, account, model, mode, tokens, per_million FROM reservations WHERE token = ?",
        (token,),
    ).fetchone()
    if row is None:
        return
    *keys, reserved, per_million = row
    cost, unpriced = _amounts(tokens - reserved, per_million)
    connection.execute(
        "UPDATE spending SET requests = requests + ?, tokens = tokens + ?, cost = max(0, cost + ?),"
        " unpriced = unpriced + ? WHERE day = ? AND account = ? AND model = ? AND mode = ?",
        ((calls if tokens else 0) - bool(reserved), tokens - reserved, cost, unpriced, *keys),
    )


# What is shown.


def reserved_batches(file: AccountFile) -> dict[str, float | None]:
    """Return what each open batch is counted with, in dollars, by its token; None where no price is known."""
    query = "SELECT token, tokens * per_million / 1e6 FROM reservations WHERE mode = ?"
    with file.reading() as connection:
        return dict(connection.execute(query, (BATCH,)).fetchall()) if connection is not None else {}


#: The provider of an account.
_PROVIDER = "substr(account, 1, instr(account || ':', ':') - 1)"


def spent(file: AccountFile, ceilings: Ceilings, now: float) -> dict[str, Any]:
    """Report what all agents of a home spent today (UTC) and in thirty days, by provider and model."""
    today, first = day_of(now), day_of(now - (LONG_DAYS - 1) * 86_400)
    query = (
        f"SELECT {_PROVIDER} AS provider, model, sum(requests), sum(tokens), sum(cost), sum(unpriced)"
        f" FROM spending WHERE day BETWEEN ? AND ? GROUP BY provider, model ORDER BY provider, model"
    )
    with file.reading() as connection:
        rows = {
            (name, provider, model): counts
            for name, begin in (("today", today), ("thirtyDays", first))
            for provider, model, *counts in (connection.execute(query, (begin, today)) if connection else ())
        }

    def counts_of(name: str, provider: str = "", model: str = "") -> dict[str, float]:
        chosen = [
            counts
            for (period, *key), counts in rows.items()
            if period == name and (not provider or key == [provider, model])
        ]
        requests, tokens, cost, unpriced = map(sum, zip(*chosen, strict=True)) if chosen else (0, 0, 0.0, 0)
        names = {"requests": requests, "tokens": tokens, "cost": round(cost, 8), "unpricedTokens": unpriced}
        return dict(names)

    keys = dict.fromkeys((provider, model) for name, provider, model in rows if name == "thirtyDays")
    return {
        "day": today,
        "today": counts_of("today"),
        "thirtyDays": counts_of("thirtyDays"),
        "models": [
            {
                "provider": provider,
                "model": model,
                "today": counts_of("today", provider, model),
                "thirtyDays": counts_of("thirtyDays", provider, model),
            }
            for provider, model in keys
        ],
        "limits": {key: limit or None for key, limit in limits_of(ceilings).items()},
    }
