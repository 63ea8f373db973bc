"""The change of the model: the new identity is built beside the old one, and search switches at the end.

While the target is being built the active identity is searched as it is. Every step is a short transaction,
and each may be repeated: a crash anywhere leaves a usable index, and the next start goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.embedders.protocol import Identity
from shared.index import identity, meta, vectors
from shared.index.driver import transaction
from shared.index.identity import IdentityRow
from shared.index.vec import VecTables
from shared.sources.tokens import estimate_tokens

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Rows a transaction of background work touches at most, so that a live edit never waits long.
SLICE_ROWS = 200


def retarget(
    connection: Connection, vec: VecTables, wanted: Identity | None, base_url: str, now: float
) -> None:
    """Embed texts with `wanted` from now on (None: with nothing); nothing happens when it is so already."""
    with transaction(connection):
        if wanted is None:
            meta.put(connection, meta.TARGET, None)
            return
        row = identity.ensure(connection, wanted, base_url, now)
        meta.put(connection, meta.TARGET, row.id)
        meta.put(connection, meta.FALLBACK, None)
        active = identity.active(connection)
        if active is None or not vectors.backlog(connection, active.id).ready:
            # Nothing to blind: the first vectors are searched as they come.
            meta.put(connection, meta.ACTIVE, row.id)
    # Also after a crash half-way through, and after a time without any provider.
    if _is_any_text_missing(connection, row.id):
        _want_all(connection, vec, row, now)
    switch_when_complete(connection, vec)


def switch_when_complete(connection: Connection, vec: VecTables) -> bool:
    """Search the target from now on, once nothing of it is pending; returns whether it switched."""
    target = identity.target(connection)
    active = identity.active(connection)
    if target is None or (active is not None and active.id == target.id):
        return False
    if vectors.is_pending(connection, target.id) or _is_any_text_missing(connection, target.id):
        return False
    if (
        not vectors.backlog(connection, target.id).ready
        and vectors.backlog(connection, active.id if active else 0).ready
    ):
        # Everything failed: the old vectors are worth more than none.
        return False
    with transaction(connection):
        meta.put(connection, meta.ACTIVE, target.id)
        if active is not None:
            vec.drop(active.id)
        meta.bump(connection)
    return True


def rest_retired(connection: Connection) -> None:
    """Vectors of identities that are neither searched nor built rest in the cache, in slices."""
    kept = (meta.get(connection, meta.ACTIVE, 0), meta.get(connection, meta.TARGET, 0))
    retired = connection.execute("SELECT id FROM identities WHERE id NOT IN (?, ?)", kept).fetchall()
    for (identity_id,) in retired:
        rested = 1
        while rested:
            with transaction(connection):
                rested = connection.execute(
                    "UPDATE vectors SET live = 0 WHERE id IN (SELECT id FROM vectors"
                    " WHERE identity_id = ? AND live = 1 AND state = 'ready' LIMIT ?)",
                    (identity_id, SLICE_ROWS),
                ).rowcount
                connection.execute(
                    "DELETE FROM vectors WHERE id IN (SELECT id FROM vectors"
                    " WHERE identity_id = ? AND live = 1 AND state <> 'ready' LIMIT ?)",
                    (identity_id, SLICE_ROWS),
                )


def forget_vectors(connection: Connection, vec: VecTables, now: float) -> None:
    """Drop every vector of the target, so that all texts are embedded and paid for again."""
    target = identity.target(connection)
    if target is None:
        return
    with transaction(connection):
        vec.drop(target.id)
        connection.execute("DELETE FROM vectors WHERE identity_id = ?", (target.id,))
        connection.execute("DELETE FROM leases WHERE identity_id = ?", (target.id,))
        connection.execute("UPDATE identities SET vector_dims = 0 WHERE id = ?", (target.id,))
        meta.bump(connection)
    _want_all(connection, vec, replace(target, vector_dims=0), now)


def _want_all(connection: Connection, vec: VecTables, row: IdentityRow, now: float) -> None:
    """Every text that a chunk has is wanted of this identity; what is cached is taken."""
    last = 0
    while True:
        with transaction(connection):
            rows = connection.execute(
                "SELECT id, text_hash, text FROM chunks WHERE id > ? ORDER BY id LIMIT ?", (last, SLICE_ROWS)
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            texts = {digest: estimate_tokens(text) for _, digest, text in rows}
            vectors.want(connection, vec, row, texts, backfill=True, now=now)
            meta.bump(connection)


def _is_any_text_missing(connection: Connection, identity_id: int) -> bool:
    """Whether some chunk's text has no live row for the identity."""
    row = connection.execute(
        "SELECT 1 FROM chunks WHERE NOT EXISTS (SELECT 1 FROM vectors"
        " WHERE identity_id = ? AND vectors.text_hash = chunks.text_hash AND live = 1) LIMIT 1",
        (identity_id,),
    ).fetchone()
    return row is not None
