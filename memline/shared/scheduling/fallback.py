"""Choose which of two providers embeds the texts of an index: the primary, or its fallback.

The rows hold the choice, so that a restart, a second process and a worker on another host all agree.

- The fallback takes over when the primary fails for good (`Health.has_given_up`).
- The primary takes its place back at the next start of a dispatcher once its breaker's cooldown is over,
  and at once when an operator asks: `memline index`, `memline queue resume`.
- The vectors of the primary are kept meanwhile, and those of the fallback are cached after that, so no text
  is paid for twice at either of them.

While the fallback is active the primary is not called. A return on its own would have to weigh what it costs
to embed the texts that the primary lacks; an operator or a restart decides that instead.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import Any

from memline.shared.embedders.choice import Choice
from memline.shared.index import identities, meta
from memline.shared.index.accounts import Accounts
from memline.shared.scheduling import health, model_change


def start(accounts: Accounts, primary: Choice, fallback: Choice | None, now: float) -> None:
    """Embed with the primary from this start on, or with its fallback while the primary rests."""
    if primary.identity is not None and is_fallback_active(accounts.index, primary, fallback):
        if health.read(accounts, primary.identity.provider).is_stuck(now):
            return
        switch_back(accounts, primary, now)
    else:
        model_change.use(accounts, primary, now)
    switch_if_needed(accounts, primary, fallback, now)


def switch_if_needed(accounts: Accounts, primary: Choice, fallback: Choice | None, now: float) -> None:
    """Change over to the fallback when the primary fails for good."""
    if primary.identity is None or fallback is None or fallback.identity is None:
        return
    state = health.read(accounts, primary.identity.provider)
    target = identities.target(accounts.index)
    if state.has_given_up and target is not None and target.identity.key == primary.identity.key:
        stopped = {"from": primary.provider, "reason": state.reason, "identity": target.id}
        model_change.use(accounts, fallback, now, stands_in_for=stopped)


def is_fallback_active(connection: Connection, primary: Choice, fallback: Choice | None) -> bool:
    """Tell whether texts are embedded by `fallback` because `primary` stopped."""
    stopped: dict[str, Any] | None = meta.get(connection, meta.FALLBACK)
    if stopped is None or fallback is None or fallback.identity is None or primary.identity is None:
        return False
    target, of = identities.target(connection), identities.by_key(connection, primary.identity.key)
    is_target = target is not None and target.identity.key == fallback.identity.key
    return is_target and of is not None and stopped.get("identity") == of.id


def switch_back(accounts: Accounts, primary: Choice, now: float) -> None:
    """Embed with the primary again and put it on trial, whatever that costs."""
    model_change.use(accounts, primary, now)
    if primary.identity is not None:
        health.retry(accounts, primary.identity.provider)
