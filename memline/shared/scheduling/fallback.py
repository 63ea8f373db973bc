"""Choose which of two providers embeds the texts of an index: the primary, or its fallback.

The rows hold the choice, so that a restart, a second process and a worker on another host all agree.

- The fallback takes over when the primary fails for good (`Health.has_given_up`).
- The primary takes its place back at the next start of a dispatcher once its breaker's cooldown is over,
  and at once when an operator asks: `memline index`, `memline queue resume`.
- The vectors of both are kept meanwhile, so no text is paid for twice at either of them.

While the fallback is active the primary is not called. A return on its own would have to weigh what it costs
to embed the texts that the primary lacks; an operator or a restart decides that instead.
"""

from __future__ import annotations

from sqlite3 import Connection

from memline.shared.embedders.choice import Choice
from memline.shared.index import identities, meta
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import transaction
from memline.shared.scheduling import health, model_change
from memline.shared.scheduling.model_change import StandIn


def start(accounts: Accounts, primary: Choice, fallback: Choice | None, now: float) -> None:
    """Embed with the primary from this start on, or with its fallback while the primary rests."""
    connection = accounts.index
    if primary.identity is not None and is_fallback_active(connection, primary, fallback):
        if health.read(accounts, primary.identity.provider).is_stuck(now):
            return
        switch_back(accounts, primary, now)
    else:
        model_change.use(accounts, primary, now)
        if primary.identity is not None and _pair(connection) not in (None, _configured(primary, fallback)):
            # The vectors of a pair stay no longer than it is configured; then they are of a former model.
            with transaction(connection):
                meta.put(connection, meta.FALLBACK_PAIR, None)
    switch_if_needed(accounts, primary, fallback, now)


def switch_if_needed(accounts: Accounts, primary: Choice, fallback: Choice | None, now: float) -> None:
    """Change over to the fallback when the primary fails for good."""
    if primary.identity is None or fallback is None or fallback.identity is None:
        return
    state = health.read(accounts, primary.identity.provider)
    target = identities.target(accounts.index)
    if not state.has_given_up or target is None or target.identity.key != primary.identity.key:
        return
    stopped = StandIn(provider=primary.provider, identity=target.id, reason=state.reason)
    model_change.use(accounts, fallback, now, stand_in=stopped)


def is_fallback_active(connection: Connection, primary: Choice, fallback: Choice | None) -> bool:
    """Tell whether texts are embedded by `fallback` because `primary` stopped."""
    pair = _configured(primary, fallback)
    if len(pair) < 2 or meta.get(connection, meta.FALLBACK) is None:
        return False
    target = identities.target(connection)
    return target is not None and target.identity.key == pair[1] and _pair(connection) == pair


def switch_back(accounts: Accounts, primary: Choice, now: float) -> None:
    """Embed with the primary again and put it on trial, whatever that costs."""
    model_change.use(accounts, primary, now)
    if primary.identity is not None:
        health.retry(accounts, primary.identity.provider)


def _pair(connection: Connection) -> tuple[str, ...] | None:
    """Read the keys of the primary's identity and of the fallback's."""
    ids = meta.get(connection, meta.FALLBACK_PAIR) or []
    rows = [identities.by_id(connection, row_id) for row_id in ids]
    keys = tuple(row.identity.key for row in rows if row)
    return keys if len(keys) == 2 else None


def _configured(primary: Choice, fallback: Choice | None) -> tuple[str, ...]:
    return tuple(choice.identity.key for choice in (primary, fallback) if choice and choice.identity)
