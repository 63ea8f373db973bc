"""Keep single values of an index: JSON text under a key."""

from __future__ import annotations

import json
from sqlite3 import Connection
from typing import Any

#: Row id of the identity that is searched.
ACTIVE = "active_identity"
#: Row id of the identity that new texts are embedded with; differs from ACTIVE while a model is changed.
TARGET = "target_identity"
#: The workspace this index is of.
WORKSPACE = "workspace"
#: Why the provider in use is not the one that was asked for: {"from", "reason", "identity" (its row id)}.
FALLBACK = "fallback"
#: Provider -> model, and mark of address and secrets, that this index uses there: its account.
HEALTH_OF = "health_of"
#: The providers that an operator paused.
PAUSED_PROVIDERS = "paused_providers"
#: Why `memline up --serve` serves nothing: {error, action}.
SERVER_FAULT = "server_fault"
#: When the sessions of a path were flushed last: path of the transcript -> seconds since the epoch.
FLUSHED_AT = "flushed_at"
#: When an operator paused the sending of texts (seconds since the epoch).
PAUSED = "paused"
#: Running totals, so that a command can tell what all processes stored while it waited.
EMBEDDED_TOTAL = "embedded_total"
CACHED_TOTAL = "cached_total"
#: Vectors stored recently: [[ten seconds of the epoch, count], …] of the last minute.
EMBEDDED_RECENTLY = "embedded_lately"

#: Seconds counted together there, and how many of them are kept.
BUCKET_S = 10
BUCKETS = 6


def get(connection: Connection, key: str, default: Any = None) -> Any:
    """Return the value of `key`, or `default`."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return default if row is None else json.loads(row[0])


def put(connection: Connection, key: str, value: Any) -> None:
    """Set `key`, inside the caller's transaction; None removes it."""
    if value is None:
        connection.execute("DELETE FROM meta WHERE key = ?", (key,))
    else:
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, json.dumps(value)))


def add(connection: Connection, key: str, amount: int) -> None:
    """Add to a running total, inside the caller's transaction."""
    put(connection, key, get(connection, key, 0) + amount)


def count_embedded(connection: Connection, amount: int, now: float) -> None:
    """Count vectors that were stored, inside the caller's transaction."""
    counts = _recent(connection, now)
    bucket = int(now) // BUCKET_S
    add(connection, EMBEDDED_TOTAL, amount)
    put(connection, EMBEDDED_RECENTLY, [*({**counts, bucket: counts.get(bucket, 0) + amount}).items()])


def recent_rate(connection: Connection, now: float) -> float:
    """Return how many vectors a second came in the last minute, or in the shorter time since the first."""
    counts = _recent(connection, now)
    return sum(counts.values()) / max(1.0, now - min(counts) * BUCKET_S) if counts else 0.0


def _recent(connection: Connection, now: float) -> dict[int, int]:
    oldest = int(now) // BUCKET_S - BUCKETS
    return {at: count for at, count in get(connection, EMBEDDED_RECENTLY, []) if at > oldest}
