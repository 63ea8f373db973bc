"""Keep the health of a provider: a circuit breaker for each of its modes, requests and batches.

`shared.scheduling.breaker` decides; here its values are rows of the provider's account
(`shared.index.accounts`), each change a transaction: of any number of processes and agents one gets the
probe, and the state survives restarts. An operator's pause is of one index, and kept there.

A definite no that is about one model (its name is unknown, say) opens a breaker of that model alone, so that
another agent with the same key goes on. While it is not closed it stands for that of the account.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memline.shared.index import identities, meta
from memline.shared.index.accounts import Accounts
from memline.shared.scheduling import breaker
from memline.shared.scheduling.breaker import (
    CLOSED,
    HALF_OPEN,
    Health,
    Rules,
    after_lost_probe,
    begin_probe,
    on_trial,
    tried_now,
)
from memline.shared.values import replace

if TYPE_CHECKING:
    from sqlite3 import Connection

#: The modes of a provider.
REQUESTS = "requests"
BATCH = "batch"
MODES = (REQUESTS, BATCH)

#: Seconds after which the probe of another index counts as lost: twice the longest window of a batch, and
#: none but that index can tell earlier.
MAX_BATCH_PROBE_S = 48 * 3_600.0

#: What a provider taught about the size of requests.
_SIZES = ("max_rows", "max_tokens", "shrunk_rows", "quick_answers", "limited_rows")

_COLUMNS = tuple(name for name in Health.__annotations__ if name != "manual")
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM health WHERE account = ? AND model = ? AND mode = ?"


#: What is said of a pause that a person asked for; of one mode `of_mode` follows.
PAUSED = "embedding is paused"

#: What a pause of batches leads to: they cost about half of what requests do.
IN_REQUESTS = "; texts go out in requests, at full price"


def of_mode(provider: str, mode: str) -> str:
    """Say which part of embedding a pause is of."""
    return f" for {mode} to {provider}"


def action_of(health: Health, provider: str, mode: str) -> str:
    """Return what ends a pause by a person, or a stop; empty where neither is."""
    resume = f"memline queue resume --provider {provider} --mode {mode}"
    return resume if health.manual else health.action or resume * health.paused


def read(accounts: Accounts, provider: str, mode: str = REQUESTS, *, model: str = "") -> Health:
    """Return the health of `provider` in a mode, as the index of `accounts` has it.

    `model`: empty for the one that texts are embedded with.
    """
    with accounts.file.reading() as connection:
        health = _in_force(accounts, connection, provider, mode, model)[1] or Health()
    is_manual = f"{provider} {mode}" in _manual(accounts.index)
    return replace(health, manual=True) if is_manual else health


def read_all(accounts: Accounts) -> dict[tuple[str, str], Health]:
    """Return the health of every provider of the index that has a row, by provider and mode."""
    manual = _manual(accounts.index)
    names = meta.get(accounts.index, meta.HEALTH_OF, {}).keys() | {key.split(" ")[0] for key in manual}
    found = {}
    for name in sorted(names):
        for mode in MODES:
            with accounts.file.reading() as connection:
                has_row = _in_force(accounts, connection, name, mode)[1] is not None
            if has_row or f"{name} {mode}" in manual:
                found[name, mode] = read(accounts, name, mode)
    return found


def update(
    accounts: Accounts,
    provider: str,
    mode: str,
    now: float,
    change: Callable[[Health], Health],
    *,
    of_model: bool = False,
) -> Health:
    """Apply a change to the health of `provider` in a mode, and return the health after it.

    `of_model`: it is about the model that texts are embedded with, and holds for no other. `change` may be
    called twice.
    """
    before = read(accounts, provider, mode)
    if change(before) == before:
        return before
    with accounts.file.writing() as connection:
        model, row = _in_force(accounts, connection, provider, mode)
        before = replace(row or Health(), manual=before.manual)
        if of_model:
            model = model or _model(accounts.index, provider)
        after = change(before)
        columns = ("account", "model", "mode", *_COLUMNS, "updated_at")
        connection.execute(
            f"INSERT INTO health ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
            " ON CONFLICT (account, model, mode) DO UPDATE SET "
            + ", ".join(f"{column} = excluded.{column}" for column in columns[3:]),
            (*(accounts.of(provider), model, mode), *(getattr(after, column) for column in _COLUMNS), now),
        )
    return after


def take_probe(
    accounts: Accounts, provider: str, mode: str, probe: str, now: float, *, until: float
) -> Health | None:
    """Take the right to send the one probe; None when it may not be sent, or another process has it.

    Call it in the transaction that records what `probe` names: if that is not committed, the probe is lost.
    """

    def begin(was: Health) -> Health:
        if is_probe_lost(accounts, was, now):
            was = after_lost_probe(was, was.probe, now)
        return begin_probe(was, probe, now, index=accounts.name, until=until) or was

    after = update(accounts, provider, mode, now, begin)
    return after if after.state == HALF_OPEN and after.probe == probe else None


def is_probe_lost(accounts: Accounts, health: Health, now: float) -> bool:
    """Tell whether the probe in flight will never be answered; what this very index sent its rows tell."""
    if health.state != HALF_OPEN:
        return False
    if health.probe_index not in ("", accounts.name):
        return health.probe_until <= now
    query = (
        "SELECT 1 FROM leases WHERE token = ?"
        " UNION SELECT 1 FROM batches WHERE token = ? AND state <> 'closed'"
    )
    return accounts.index.execute(query, (health.probe, health.probe)).fetchone() is None


def forget(accounts: Accounts, provider: str) -> None:
    """Forget all but an operator's pause: another model or address begins anew."""
    for mode in MODES:
        # Twice: first what the model has, then what the account has.
        for _ in range(2):
            update(accounts, provider, mode, 0.0, lambda health: Health(manual=health.manual))


def retry(
    accounts: Accounts, provider: str, now: float, mode: str = REQUESTS, *, rules: Rules | None = None
) -> None:
    """Put a provider on trial, whatever its cooldown: an operator says that it works again.

    `rules`: those of the mode; None for those of requests.
    """
    for _ in range(2):
        update(accounts, provider, mode, now, lambda health: on_trial(health, rules or breaker.REQUEST_RULES))


def set_paused(accounts: Accounts, provider: str, is_paused: bool, mode: str) -> None:
    """Pause a provider in one mode for an operator, or end that pause, in the caller's transaction."""
    keys = _manual(accounts.index) - {f"{provider} {mode}"}
    if is_paused:
        keys.add(f"{provider} {mode}")
    meta.put(accounts.index, meta.PAUSED_MODES, sorted(keys) or None)


def forget_limits(accounts: Accounts, provider: str, now: float) -> None:
    """Forget the caps a provider taught, which it may have raised, and the time it asked to wait.

    A process whose clock was hours ahead leaves a time that is hours away.
    """
    none: dict[str, Any] = {**dict.fromkeys(_SIZES, 0), "retry_at": 0.0}
    for mode in MODES:
        update(accounts, provider, mode, now, lambda health: replace(tried_now(health, now), **none))


def may_batch(accounts: Accounts, provider: str, now: float, *, tag: str = "") -> bool:
    """Tell whether a batch may be made now; with the breaker open True once, for the probe that `tag` names.

    Call it in the transaction that records the intent; if that is not committed, the probe is lost.
    """
    health = read(accounts, provider, BATCH)
    if meta.get(accounts.index, meta.PAUSED, False):
        return False
    if health.state == CLOSED:
        return not health.manual
    until = now + MAX_BATCH_PROBE_S
    return take_probe(accounts, provider, BATCH, tag, now, until=until) is not None


def _in_force(
    accounts: Accounts, connection: Connection | None, provider: str, mode: str, model: str = ""
) -> tuple[str, Health | None]:
    """Read the row that counts, and of which model it is: the model's while it is not closed."""
    account = accounts.of(provider)
    for name in (model or _model(accounts.index, provider), ""):
        row = connection.execute(_SELECT, (account, name, mode)).fetchone() if connection else None
        if row is not None:
            found = Health(**dict(zip(_COLUMNS, row, strict=True)))
            if not name or found.state != CLOSED or found.failures:
                return name, found
    return "", None


def _model(index: Connection, provider: str) -> str:
    target = identities.target(index)
    return target.identity.model if target is not None and target.identity.provider == provider else ""


def _manual(index: Connection) -> set[str]:
    """Read what an operator paused: `<provider> <mode>`."""
    return set(meta.get(index, meta.PAUSED_MODES, ()))
