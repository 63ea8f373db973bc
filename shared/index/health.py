"""Health of a provider as a row: on hold until a time, paused until somebody acts, caps it taught us.

Beside the index and not in a worker, so that it survives restarts and every process that sends texts out
sees the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Failures in a row, of whatever text, after which a provider is paused instead of asked again. With the
#: holds between them (1, 2, 4, 8, 16 s) it had half a minute to come back.
MAX_FAILURES = 6

#: Seconds nobody calls after the first failure that came without a word about when; doubled by each further.
FIRST_HOLD_S = 1.0

#: Seconds after which a long-lived process sends one request to a paused provider to see if it is back.
PROBE_AFTER_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
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
