"""Health of a provider as a row: on hold until a time, paused until somebody acts, caps it taught us.

Beside the index and not in a worker, so that it survives restarts and every process that sends texts out
sees the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Failures in a row, of whatever text, after which a provider is paused instead of asked again. With the
#: holds between them (1, 2, 4, 8, 16 s) it had half a minute to come back.
MAX_FAILURES = 6

#: Seconds nobody calls after the first failure that came without a word about when; doubled by each further.
FIRST_HOLD_S = 1.0

#: Longest of these holds, in seconds.
MAX_HOLD_S = 60.0

#: Seconds after which a long-lived process sends one request to a paused provider to see if it is back.
PROBE_AFTER_S = 300.0


@value
class Health:
    """What is known of a provider; the defaults are those of one that was never in trouble."""

    state: str = "ok"
    reason: str = ""
    action: str = ""
    failures: int = 0
    #: Nobody calls before this time (seconds since the epoch).
    hold_until: float = 0.0
    max_rows: int = 0
    max_tokens: int = 0

    @property
    def paused(self) -> bool:
        return self.state == "paused"


def read(connection: Connection, provider: str) -> Health:
    """The health of `provider`."""
    row = connection.execute(
        "SELECT state, reason, action, failures, hold_until, max_rows, max_tokens FROM providers"
        " WHERE name = ?",
        (provider,),
    ).fetchone()
    if row is None:
        return Health()
    state, reason, action, failures, hold_until, max_rows, max_tokens = row
    return Health(
        state=state,
        reason=reason,
        action=action,
        failures=failures,
        hold_until=hold_until,
        max_rows=max_rows,
        max_tokens=max_tokens,
    )


def write(connection: Connection, provider: str, health: Health, now: float) -> None:
    """Keep the health of `provider`, inside the caller's transaction."""
    connection.execute(
        "INSERT INTO providers (name, state, reason, action, failures, hold_until, max_rows, max_tokens,"
        " updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
        " state = excluded.state, reason = excluded.reason, action = excluded.action,"
        " failures = excluded.failures, hold_until = excluded.hold_until, max_rows = excluded.max_rows,"
        " max_tokens = excluded.max_tokens, updated_at = excluded.updated_at",
        (
            provider,
            health.state,
            health.reason,
            health.action,
            health.failures,
            health.hold_until,
            health.max_rows,
            health.max_tokens,
            now,
        ),
    )


def put_off(was: Health, error: str, action: str, retry_after_s: float | None, now: float) -> Health:
    """The health after a request that may work later: a hold as long as we were told, else a longer one each
    time, and a pause after `MAX_FAILURES` of them in a row.

    Waiting as told is no failure. A told wait of less than `FIRST_HOLD_S` is none: a provider that says
    "retry at once" and never answers would be asked for ever.
    """
    if was.paused:
        return was
    if retry_after_s is not None and retry_after_s >= FIRST_HOLD_S:
        return replace(was, reason=error, hold_until=max(was.hold_until, now + retry_after_s))
    if was.hold_until > now:
        # A request that was out with the one that brought the hold: the same trouble, counted once.
        return was
    failures = was.failures + 1
    if failures >= MAX_FAILURES:
        action = action or "memline index   (when the provider is well again)"
        return replace(was, state="paused", reason=error, action=action, failures=failures)
    hold_s = min(FIRST_HOLD_S * 2.0 ** (failures - 1), MAX_HOLD_S)
    return replace(was, reason=error, failures=failures, hold_until=now + hold_s)


def forget_caps(connection: Connection, provider: str) -> None:
    """Forget the caps a provider taught, inside the caller's transaction."""
    connection.execute("UPDATE providers SET max_rows = 0, max_tokens = 0 WHERE name = ?", (provider,))


def unpause(connection: Connection, provider: str, now: float, after_s: float = PROBE_AFTER_S) -> None:
    """Give a provider that has been paused for so long another chance, inside the caller's transaction."""
    row = connection.execute(
        "SELECT updated_at FROM providers WHERE name = ? AND state = 'paused'", (provider,)
    ).fetchone()
    if row and row[0] + after_s <= now:
        # One failure on record: a single request goes first, and only its success opens the rest.
        again = replace(read(connection, provider), state="ok", reason="", action="", failures=1)
        write(connection, provider, again, now)


def tighter(cap: int, other: int) -> int:
    """The smaller of two caps, 0 meaning none."""
    return min(cap, other) if cap and other else cap or other
