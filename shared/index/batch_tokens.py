"""How many tokens the open batches of an account may hold together, where a provider says so.

An account may have so many tokens under way ("Limit: 3,000,000 enqueued tokens"), all its jobs together,
also those of others. With such a limit known there is one batch at a time, and it stays below it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.index import batches, health, identity

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.index.batches import Batch

#: A batch that is refused although it has no more than this part of the limit is not refused for its size.
SMALLEST_PART = 4


def learn(connection: Connection, batch: Batch, limit: int, now: float) -> bool:
    """Note that a batch was refused for a limit, inside the caller's transaction; False when a smaller one
    would not help either."""
    row = identity.by_id(connection, batch.identity_id)
    assert row is not None
    provider = row.identity.provider
    (tokens,) = connection.execute(
        "SELECT coalesce(sum(tokens), 0) FROM vectors WHERE lease = ?", (batch.token,)
    ).fetchone()
    if tokens > limit or batches.unfinished(connection):
        most = limit
    elif batches.texts_left(connection, batch.token) > 1 and tokens > limit // SMALLEST_PART:
        # Ours are estimates, so one that should have fitted is halved.
        most = tokens // 2
    else:
        return False
    was = health.read(connection, provider, health.BATCH)
    health.write(connection, provider, replace(was, max_tokens=most), now, health.BATCH)
    return True
