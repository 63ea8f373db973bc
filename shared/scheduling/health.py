"""Keep the health of a provider: a circuit breaker for each of its modes, requests and batches.

    closed     texts are sent; after a failure one request at a time, with growing cooldowns between
       |  `Rules.limit` failures in a row, or a definite stop (bad key, no quota)
       v
    open       no process calls; the breaker's cooldown runs
       |  the cooldown is over and texts are wanted: exactly one request is sent, the probe
       v
    half_open  the probe is in flight and no other process calls
       |- the probe worked:   closed
       |- the probe failed:   open, for twice as long, up to `Rules.max_open_s`
       `- the probe was lost: open, and the next one may be sent at once

The first part is pure: a value in, a value out, the time an argument. The second part keeps the values as
rows, inside the transaction that leases texts or stores an answer: of any number of processes one gets the
probe, and the state survives restarts. An answer from before the breaker opened changes nothing until it is
closed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from memline.shared.index import meta
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.config.schema import Batch

CLOSED = "closed"
OPEN = "open"
HALF_OPEN = "half_open"

#: The modes of a provider.
REQUESTS = "requests"
BATCH = "batch"
MODES = (REQUESTS, BATCH)


@value
class Rules:
    """When a breaker opens, and for how long."""

    #: Failures in a row that open it.
    limit: int
    #: Seconds it stays open the first time; doubled by each probe that fails.
    open_s: float
    #: Longest of these, in seconds.
    max_open_s: float
    #: Seconds of cooldown after the first failure, while it is closed and the provider named no time; doubled
    #: by each further failure. A shorter `Retry-After` is not trusted: a provider that says "at once" and
    #: never answers would be asked for ever. 0: no cooldowns.
    first_cooldown_s: float = 0.0
    #: Longest of these cooldowns, in seconds.
    max_cooldown_s: float = 60.0


#: A breaker of requests opens after half a minute of trouble: six failures with cooldowns of 1, 2, 4, 8 and
#: 16 s between them. Its probe is one request, so it is sent early and often.
REQUEST_RULES = Rules(limit=6, open_s=300.0, max_open_s=3_600.0, first_cooldown_s=1.0)


def batch_rules(batch: Batch) -> Rules:
    """Return the rules of batches by the settings `remote.batch`.

    A batch takes minutes to a day to fail, and costs nothing but time while requests go on instead.
    """
    open_s = 60.0 * batch.cool_down_minutes
    return Rules(limit=batch.failure_limit, open_s=open_s, max_open_s=12 * open_s)


@value
class Health:
    """The state of a provider in one mode; the defaults are those of one that never failed."""

    state: str = CLOSED
    reason: str = ""
    action: str = ""
    #: In a row.
    failures: int = 0
    #: No process calls before this time (seconds since the epoch), whatever the state.
    retry_at: float = 0.0
    #: When the breaker opened; 0 while it is closed.
    since: float = 0.0
    #: When the next probe may be sent, while it is open.
    probe_at: float = 0.0
    #: Times it opened since it was closed last.
    opens: int = 0
    #: What names the probe in flight: the token of a lease, the tag of a batch.
    probe: str = ""
    #: Whether an operator paused it.
    manual: bool = False
    #: Caps the provider taught; 0 is none. Tokens: of a request, or of all open batches together. They are
    #: stored, since each run of `memline index` would meet them again; `queue resume` forgets them.
    max_rows: int = 0
    max_tokens: int = 0

    @property
    def paused(self) -> bool:
        """Whether the provider is not to be called, but for a probe."""
        return self.state != CLOSED

    def is_stuck(self, now: float) -> bool:
        """Tell whether nothing moves by itself now."""
        return self.manual or (self.state == OPEN and self.probe_at > now)


def after_failure(
    health: Health, rules: Rules, error: str, action: str, now: float, *, probe: str = ""
) -> Health:
    """Return the health after a failure that may pass; `probe` names the request or batch that failed."""
    if _is_outdated(health, probe):
        return health
    if health.state == HALF_OPEN:
        return _opened(health, rules, error, action, now)
    if rules.first_cooldown_s and health.retry_at > now:
        # It was in flight together with the one that began the cooldown: the same trouble, counted once.
        return health
    failures = health.failures + 1
    if failures >= rules.limit:
        return _opened(health, rules, error, action, now)
    cooldown_s = min(rules.first_cooldown_s * 2.0 ** (failures - 1), rules.max_cooldown_s)
    retry_at = now + cooldown_s if cooldown_s else health.retry_at
    return replace(health, reason=error, action=action, failures=failures, retry_at=retry_at)


def after_stop(
    health: Health, rules: Rules, error: str, action: str, now: float, *, probe: str = ""
) -> Health:
    """Return the health after a definite no (bad key, no quota): the breaker opens at once."""
    return health if _is_outdated(health, probe) else _opened(health, rules, error, action, now)


def after_trouble(
    health: Health, error: str, action: str, retry_after_s: float | None, now: float, *, probe: str = ""
) -> Health:
    """Return the health after a request that may work later: the cooldown it asked for, else a failure."""
    if retry_after_s is None or retry_after_s < REQUEST_RULES.first_cooldown_s:
        action = action or "memline index   (when the provider is well again)"
        return after_failure(health, REQUEST_RULES, error, action, now, probe=probe)
    if _is_outdated(health, probe):
        return health
    # A time to wait is not a failure.
    retry_at = max(health.retry_at, now + retry_after_s)
    if health.state == HALF_OPEN:
        return replace(health, state=OPEN, probe="", probe_at=retry_at)
    return replace(health, reason=error, retry_at=retry_at)


def after_success(health: Health, *, probe: str = "") -> Health:
    """Return the health after a good answer."""
    if _is_outdated(health, probe):
        return health
    return replace(
        health, state=CLOSED, reason="", action="", failures=0, since=0.0, probe_at=0.0, opens=0, probe=""
    )


def after_refused_text(health: Health, *, probe: str = "") -> Health:
    """Return the health after a refused text: neither success nor fault, but a provider that judges works."""
    return after_success(health, probe=probe) if health.state == HALF_OPEN else health


def begin_probe(health: Health, probe: str, now: float) -> Health | None:
    """Return the health once `probe` is sent; None when no probe may be sent."""
    if health.state != OPEN or health.manual or health.probe_at > now:
        return None
    return replace(health, state=HALF_OPEN, probe=probe)


def after_lost_probe(health: Health, probe: str, now: float) -> Health:
    """Return the health when the probe will never be answered: it was cancelled, or its worker died."""
    if health.state != HALF_OPEN or _is_outdated(health, probe):
        return health
    return replace(health, state=OPEN, probe="", probe_at=now)


def on_trial(health: Health, rules: Rules) -> Health:
    """Return the health when an operator says that it works again: closed, but the next failure opens it."""
    if health.state == CLOSED:
        return health
    return replace(
        after_success(replace(health, state=CLOSED)), failures=max(rules.limit - 1, 0), retry_at=0.0
    )


def tighter(cap: int, other: int) -> int:
    """Return the smaller of two caps, 0 meaning none."""
    return min(cap, other) if cap and other else cap or other


def _is_outdated(health: Health, probe: str) -> bool:
    """Tell whether an outcome was sent before the breaker opened, or before the probe that is in flight."""
    is_older = health.state == HALF_OPEN and bool(probe) and bool(health.probe) and probe != health.probe
    return health.state == OPEN or is_older


def _opened(health: Health, rules: Rules, error: str, action: str, now: float) -> Health:
    opens = health.opens + 1
    # An exponent with a limit: a provider that is dead for a year must not overflow a float.
    open_s = min(rules.open_s * 2.0 ** min(opens - 1, 30), rules.max_open_s)
    return replace(
        health,
        state=OPEN,
        reason=error,
        action=action,
        failures=health.failures + 1,
        # What was deferred meanwhile waits for the probe, not for a time.
        retry_at=0.0,
        since=health.since or now,
        probe_at=now + open_s,
        opens=opens,
        probe="",
    )


# The rows. All functions that write run inside the caller's transaction.

_COLUMNS = tuple(Health.__annotations__)


def read(connection: Connection, provider: str, mode: str = REQUESTS) -> Health:
    """Return the health of `provider` in a mode."""
    row = connection.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM providers WHERE name = ? AND mode = ?", (provider, mode)
    ).fetchone()
    if row is None:
        return Health()
    columns = dict(zip(_COLUMNS, row, strict=True))
    return Health(**{**columns, "manual": bool(columns["manual"])})


def read_all(connection: Connection) -> dict[tuple[str, str], Health]:
    """Return the health of every provider that has a row, by provider and mode."""
    keys = connection.execute("SELECT name, mode FROM providers ORDER BY name, mode DESC").fetchall()
    return {(name, mode): read(connection, name, mode) for name, mode in keys}


def write(connection: Connection, provider: str, health: Health, now: float, mode: str = REQUESTS) -> None:
    """Store the health of `provider` in a mode."""
    connection.execute(
        f"INSERT INTO providers (name, mode, {', '.join(_COLUMNS)}, updated_at)"
        f" VALUES (?, ?, {', '.join('?' * len(_COLUMNS))}, ?) ON CONFLICT (name, mode) DO UPDATE SET "
        + ", ".join(f"{column} = excluded.{column}" for column in (*_COLUMNS, "updated_at")),
        (provider, mode, *(getattr(health, column) for column in _COLUMNS), now),
    )


def update(
    connection: Connection, provider: str, mode: str, now: float, change: Callable[[Health], Health]
) -> Health:
    """Apply a change to the row of `provider` in a mode, and return the health after it."""
    before = read(connection, provider, mode)
    after = change(before)
    if after != before:
        write(connection, provider, after, now, mode)
    return after


def forget(connection: Connection, provider: str) -> None:
    """Forget all but an operator's pause: another model, address or key begins anew."""
    for mode in MODES:
        update(connection, provider, mode, 0.0, lambda health: Health(manual=health.manual))


def retry(
    connection: Connection, provider: str, now: float, mode: str = REQUESTS, *, rules: Rules | None = None
) -> None:
    """Put a provider on trial, whatever its cooldown: an operator says that it works again.

    `rules`: those of the mode; None for those of requests.
    """
    update(connection, provider, mode, now, lambda health: on_trial(health, rules or REQUEST_RULES))


def set_paused(connection: Connection, provider: str, is_paused: bool, now: float, mode: str) -> None:
    """Pause a provider in one mode for an operator, or end that pause."""
    update(connection, provider, mode, now, lambda health: replace(health, manual=is_paused))


def forget_caps(connection: Connection, provider: str) -> None:
    """Forget the caps a provider taught: it may have raised them."""
    connection.execute("UPDATE providers SET max_rows = 0, max_tokens = 0 WHERE name = ?", (provider,))


def may_batch(connection: Connection, provider: str, now: float, *, tag: str = "") -> bool:
    """Tell whether a batch may be made now; with the breaker open True once, for the probe that `tag` names.

    Call it in the transaction that records the intent, or a crash between the two loses the probe.
    """
    health = read(connection, provider, BATCH)
    if meta.get(connection, meta.PAUSED, False):
        return False
    if health.state == CLOSED:
        return not health.manual
    after = begin_probe(health, tag, now)
    if after is None:
        return False
    write(connection, provider, after, now, BATCH)
    return True
